#include "module.h"

PYBIND11_MODULE(_C, m) {
  m.attr("version") = REMAT_VERSION;
  m.attr("torch_version") = REMAT_TORCH_VERSION;
  remat::python::bind_doors(m);
  remat::python::bind_errors(m);
  remat::python::bind_memory(m);
  remat::python::bind_scopes(m);
  remat::python::bind_session(m);
}

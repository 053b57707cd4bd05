#include "module.h"

PYBIND11_MODULE(_C, m) {
  // Users read the Python modules' signatures; those of these functions would name types that they cannot make.
  remat::python::py::options options;
  options.disable_function_signatures();
  m.attr("version") = REMAT_VERSION;
  m.attr("torch_version") = REMAT_TORCH_VERSION;
  remat::python::bind_compiled(m);
  remat::python::bind_device_estimate(m);
  remat::python::bind_doors(m);
  remat::python::bind_errors(m);
  remat::python::bind_export(m);
  remat::python::bind_fit(m);
  remat::python::bind_interpreter_lock(m);
  remat::python::bind_memory(m);
  remat::python::bind_operators(m);
  remat::python::bind_scopes(m);
  remat::python::bind_session(m);
  remat::python::bind_state_pager(m);
  remat::python::bind_tiles(m);
  remat::python::bind_wrappers(m);
}

#include <remat/memory.h>

#include <remat/budget.h>

#include "module.h"

namespace remat::python {

void bind_memory(py::module_& m) {
  const auto without_lock = py::call_guard<py::gil_scoped_release>();
  m.def("memory_start_accounting", &memory::start_accounting, without_lock);
  m.def("memory_current", &memory::current, without_lock);
  m.def("memory_peak", &memory::peak, without_lock);
  m.def("memory_reset_peak", &memory::reset_peak, without_lock);
  m.def("memory_limit", &memory::limit, without_lock);
  m.def("memory_set_limit", &memory::set_limit, without_lock);
  m.def("memory_cached", &memory::cached, without_lock);
  m.def("memory_release_cached", &memory::release_cached, without_lock);
  m.def("memory_resident_peak", &memory::resident_peak, without_lock);
  m.def("format_bytes", &format_bytes);
}

}  // namespace remat::python

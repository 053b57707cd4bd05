#include <remat/extension.h>
#include <remat/operators.h>

#include "module.h"

namespace remat::python {

void bind_operators(py::module_& m) {
  m.def("declare_repeatable", &declare_repeatable, py::call_guard<py::gil_scoped_release>());
  m.def("declare_not_repeatable", &declare_not_repeatable, py::call_guard<py::gil_scoped_release>());
  m.def("is_recorded_operator", &extension::is_recorded_operator, py::call_guard<py::gil_scoped_release>());
  m.def("is_repeatable", &extension::is_repeatable, py::call_guard<py::gil_scoped_release>());
}

}  // namespace remat::python

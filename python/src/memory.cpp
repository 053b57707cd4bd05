#include <remat/memory.h>

#include <remat/budget.h>
#include <remat/extension.h>

#include <vector>

#include <torch/csrc/autograd/python_variable.h>

#include "module.h"

namespace remat::python {
namespace {

/// Every tensor that has a Python object, and their gradients, which need not have one. From the list of all objects,
/// in which there may be tuples that other threads are still making: they must be alone with them again before one of
/// those threads runs, so that no Python is called here.
std::vector<at::Tensor> tensors_of_python() {
  std::vector<at::Tensor> tensors;
  const py::object all = py::module_::import("gc").attr("get_objects")();
  auto* const tensor_type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all.ptr()); ++i) {
    PyObject* const object = PyList_GET_ITEM(all.ptr(), i);
    if (PyType_IsSubtype(Py_TYPE(object), tensor_type) == 0) continue;
    const at::Tensor& tensor = tensors.emplace_back(THPVariable_Unpack(object));
    if (!tensor.defined() || !tensor.is_leaf() || !tensor.requires_grad()) continue;
    if (const at::Tensor gradient = tensor.grad(); gradient.defined()) tensors.push_back(gradient);
  }
  return tensors;
}

}  // namespace

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
  m.def("memory_adopt_older", [] {
    const std::vector<at::Tensor> tensors = tensors_of_python();
    const py::gil_scoped_release released;
    for (const at::Tensor& tensor : tensors) extension::count_memory(tensor);
  });
  m.def("format_bytes", &format_bytes);
}

}  // namespace remat::python

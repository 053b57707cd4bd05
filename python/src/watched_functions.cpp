#include "watched_functions.h"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <remat/error.h>
#include <remat/extension.h>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pycfunction_helpers.h>

namespace remat::python {

namespace {

struct Watched {
  PyMethodDef* method = nullptr;
  PyCFunction original = nullptr;
  PyObject* tell = nullptr;  ///< never let go of: the function may be called until the process ends
};

constexpr size_t kMost = 8;
std::array<Watched, kMost> g_watched;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): under the GIL

/// False where `tell` raised an error.
bool told(const Watched& watched, PyObject* tensor) {
  if (tensor == nullptr || !extension::is_anything_recorded() || !THPVariable_Check(tensor)) return true;
  PyObject* const nothing = PyObject_CallOneArg(watched.tell, tensor);
  Py_XDECREF(nothing);
  return nothing != nullptr;
}

/// A method's tensor is `self`; a function's is the first of its arguments.
PyObject* tensor_of(PyObject* self, PyObject* arguments) {
  if (self != nullptr && THPVariable_Check(self)) return self;
  if (arguments == nullptr || !PyTuple_Check(arguments)) return arguments;  // METH_O
  return PyTuple_GET_SIZE(arguments) > 0 ? PyTuple_GET_ITEM(arguments, 0) : nullptr;
}

template <size_t index>
PyObject* call(PyObject* self, PyObject* arguments) {
  const Watched& watched = g_watched[index];
  return told(watched, tensor_of(self, arguments)) ? watched.original(self, arguments) : nullptr;
}

template <size_t index>
PyObject* call_with_keywords(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const Watched& watched = g_watched[index];
  if (!told(watched, tensor_of(self, arguments))) return nullptr;
  const auto original = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(watched.original));
  return original(self, arguments, keywords);
}

struct Calls {
  PyCFunction plain = nullptr;
  PyCFunction with_keywords = nullptr;
};

template <size_t... indices>
std::array<Calls, kMost> calls(std::index_sequence<indices...> /*all*/) {
  return {Calls{&call<indices>, castPyCFunctionWithKeywords(&call_with_keywords<indices>)}...};
}

PyMethodDef* method_of(PyObject* function) {
  if (PyCFunction_Check(function)) return reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (Py_IS_TYPE(function, &PyMethodDescr_Type)) return reinterpret_cast<PyMethodDescrObject*>(function)->d_method;
  throw Error("[watch_function] " + py::repr(function).cast<std::string>() + " is no function in C");
}

}  // namespace

void watch_function(const py::object& function, const py::object& tell) {
  static const auto kCalls = calls(std::make_index_sequence<kMost>());
  PyMethodDef* const method = method_of(function.ptr());
  size_t index = 0;
  for (; index < kMost && g_watched[index].method != nullptr; ++index) {
    if (g_watched[index].method == method) return;
  }
  const int passing = method->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_O | METH_NOARGS | METH_FASTCALL);
  const bool keywords = passing == (METH_VARARGS | METH_KEYWORDS);
  if (index == kMost || !(keywords || passing == METH_VARARGS || passing == METH_O)) {
    throw Error("[watch_function] " + std::string(method->ml_name) + " cannot be watched");
  }
  g_watched[index] = {.method = method, .original = method->ml_meth, .tell = tell.inc_ref().ptr()};
  method->ml_meth = keywords ? kCalls[index].with_keywords : kCalls[index].plain;
}

}  // namespace remat::python

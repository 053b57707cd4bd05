// The interpreter's lock, which the library releases while a thread waits, and the interpreter's end.
#include <thread>

#include <ATen/ops/zeros.h>
#include <remat/extension.h>

#include "module.h"

namespace remat::python {

bool is_interpreter_alive() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
#else
  return Py_IsInitialized() != 0 && _Py_IsFinalizing() == 0;
#endif
}

void* release_lock() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return nullptr;
  return PyEval_SaveThread();
}

void acquire_lock(void* released) { PyEval_RestoreThread(static_cast<PyThreadState*>(released)); }

/// Signals are Python's main thread's: on others this does nothing.
void check_interrupt() {
  if (!is_interpreter_alive()) return;
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// Until autograd's thread of the device, an accelerator, has released what came before: it does so after backward()
/// has returned. From a thread of its own, since a backward holds its thread's state, and that of Python's threads has
/// objects of Python's, which the device's thread would release too.
void wait_for_autograd(c10::Device device) {
  const py::gil_scoped_release others_run;
  std::thread([device] {
    try {
      at::zeros({}, device).requires_grad_().clone().backward();
    } catch (const std::exception&) {  // a device that failed, a forked process: there is nothing to wait for
    }
  }).join();
}

void bind_interpreter_lock(py::module_& m) {
  extension::set_interpreter_lock(
      {.release = release_lock, .acquire = acquire_lock, .check_interrupt = check_interrupt});
  m.def("wait_for_autograd", &wait_for_autograd, py::arg("device"));
}

}  // namespace remat::python

// The interpreter's lock, which the library releases while a thread waits.
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

void bind_interpreter_lock() { extension::set_interpreter_lock({.release = release_lock, .acquire = acquire_lock}); }

}  // namespace remat::python

// The interpreter's lock, which the library releases while a thread waits.
#include <remat/extension.h>

#include "module.h"

namespace remat::python {

void* release_lock() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return nullptr;
  return PyEval_SaveThread();
}

void acquire_lock(void* released) { PyEval_RestoreThread(static_cast<PyThreadState*>(released)); }

void bind_interpreter_lock() { extension::set_interpreter_lock({.release = release_lock, .acquire = acquire_lock}); }

}  // namespace remat::python

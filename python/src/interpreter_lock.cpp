// The interpreter's lock, which the library releases while a thread waits.
#include <remat/extension.h>

#include "module.h"

namespace remat::python {
namespace {

void* release() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return nullptr;
  return PyEval_SaveThread();
}

void acquire(void* released) { PyEval_RestoreThread(static_cast<PyThreadState*>(released)); }

}  // namespace

void bind_interpreter_lock() { extension::set_interpreter_lock({.release = release, .acquire = acquire}); }

}  // namespace remat::python

// python/src/module.h -- remat._C in parts, one for each public header that it stands for.
//
// It holds what needs C++ and no more; arguments are checked and documented in the Python modules on top.
#pragma once

#include <remat/ranks.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace remat::python {

namespace py = pybind11;

void bind_compiled(py::module_& m);
void bind_device_estimate(py::module_& m);
void bind_doors(py::module_& m);
void bind_errors(py::module_& m);
void bind_export(py::module_& m);
void bind_fit(py::module_& m);
void bind_interpreter_lock(py::module_& m);
void bind_memory(py::module_& m);
void bind_operators(py::module_& m);
void bind_scopes(py::module_& m);
void bind_session(py::module_& m);
void bind_state_pager(py::module_& m);
void bind_tiles(py::module_& m);
void bind_wrappers(py::module_& m);

/// Releases the interpreter's lock where this thread holds it, and returns what acquire_lock() takes; null where it
/// does not.
void* release_lock();
void acquire_lock(void* released);

/// Is the interpreter there, and not about to end? Then a thread that asks for its lock would be ended by it, in the
/// middle of destructors, which ends the process.
bool is_interpreter_alive();
/// Deletes an object of Python's, or what holds some, on a thread that need not have the interpreter's lock. At the
/// interpreter's end it stays.
template <class Object>
void delete_on_any_thread(Object* object) {
  if (!is_interpreter_alive()) return;
  const py::gil_scoped_acquire lock;
  delete object;
}

/// See remat.Session's process_group: by all-reductions over `connections`, which nothing else uses.
Ranks ranks_of(c10::intrusive_ptr<c10d::Backend> connections);

}  // namespace remat::python

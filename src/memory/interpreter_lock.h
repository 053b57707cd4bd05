// src/memory/interpreter_lock.h -- the lock of an interpreter that the library is loaded into, as Python's.
//
// What Python owns (memory of NumPy arrays, storages that have Python objects) is destroyed with that lock, also where
// a tape that releases it is locked. So it is the innermost lock: nobody waits for another one, or for another thread,
// while he holds it.
#pragma once

namespace remat {

/// While it lives, this thread does not hold the interpreter's lock. Does nothing where there is no interpreter.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock();
  ~WithoutInterpreterLock();
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  void* released_;
};

/// Throws where the user has interrupted this thread: for those who wait for long, with no lock held.
void check_interrupt();

}  // namespace remat

// src/tape/tape_mutex.h -- the mutex of a tape.
#pragma once

#include <chrono>
#include <mutex>

#include "memory/interpreter_lock.h"

namespace remat {

/// Recursive. Who waits for it does so without the interpreter's lock: its owner may need that to destroy what
/// Python owns.
class TapeMutex {
 public:
  void lock() {
    if (mutex_.try_lock()) return;
    const WithoutInterpreterLock unlocked;
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  /// By the system's clock, because ThreadSanitizer of GCC 12 does not know the call that waits by the steady one.
  bool try_lock_until(std::chrono::system_clock::time_point deadline) {
    if (mutex_.try_lock()) return true;
    const WithoutInterpreterLock unlocked;
    return mutex_.try_lock_until(deadline);
  }
  void unlock() { mutex_.unlock(); }

 private:
  std::recursive_timed_mutex mutex_;
};

using TapeLock = std::unique_lock<TapeMutex>;

/// Another thread's tape may wait for this one's; its values are not worth a deadlock. The result owns no lock if it
/// took too long.
inline TapeLock lock_for_a_while(TapeMutex& mutex) {
  constexpr std::chrono::milliseconds kLongest{200};
  return {mutex, std::chrono::system_clock::now() + kLongest};
}

}  // namespace remat

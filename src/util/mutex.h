// src/util/mutex.h -- a mutex that says what it protects.
//
// Clang checks at compile time that what is GUARDED_BY a mutex is touched under it alone (-Wthread-safety, which the
// preset `tidy` makes an error: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html). The standard library of GCC has
// no annotations, hence these classes. A tape's mutex (tape/tape_mutex.h) is not annotated: the analysis does not
// follow it through lambdas and references, by which tapes are handed on.
#pragma once

#include <mutex>

#if defined(__clang__)
#define REMAT_ANNOTATE(attribute) __attribute__((attribute))
#else
#define REMAT_ANNOTATE(attribute)
#endif

/// Read and written with the mutex held.
#define REMAT_GUARDED_BY(mutex) REMAT_ANNOTATE(guarded_by(mutex))
/// Called with the mutex held.
#define REMAT_REQUIRES(mutex) REMAT_ANNOTATE(requires_capability(mutex))
/// Takes the mutex, or gives it back, and leaves it so.
#define REMAT_ACQUIRE(...) REMAT_ANNOTATE(acquire_capability(__VA_ARGS__))
#define REMAT_RELEASE(...) REMAT_ANNOTATE(release_capability(__VA_ARGS__))
/// Not checked; its comment says why.
#define REMAT_UNCHECKED REMAT_ANNOTATE(no_thread_safety_analysis)

namespace remat {

/// std::mutex, annotated.
class REMAT_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() REMAT_ACQUIRE() { mutex_.lock(); }
  bool try_lock() REMAT_ANNOTATE(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() REMAT_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// std::lock_guard<Mutex>, annotated.
class REMAT_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) REMAT_ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
  ~MutexLock() REMAT_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace remat

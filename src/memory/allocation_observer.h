// src/memory/allocation_observer.h -- tells an observer of every block of a device's memory that comes or goes.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace remat::memory {

/// Called on the thread that allocates or frees, with no lock held but the observers' own, and for frees on CUDA the
/// caching allocator's. Must not allocate or free tensors. `plain`: false for what plain PyTorch would not do
/// (FrozenPlain).
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  virtual void allocated(const void* data, int64_t bytes, bool plain) noexcept = 0;
  virtual void freed(const void* data, int64_t bytes, bool plain) noexcept = 0;
  /// Called in place of freed() on a thread that has another observer: the block may be one that allocated() told of.
  virtual void freed_elsewhere(const void* data, int64_t bytes, bool plain) noexcept = 0;
};

/// Tells `observer` from now on of the blocks of `device`, which is named as its tensors name it: of those of this
/// thread, and of those of threads without an observer, which all observers are told of.
void observe_allocations(AllocationObserver& observer, c10::Device device);
/// Tells `observer` of nothing more. Waits for a call in progress.
void stop_observing(AllocationObserver& observer);

/// Called around a fork. In the child there is no observer any more.
void lock_observers();
void unlock_observers(bool in_child);

// For the allocators.
void tell_allocated(c10::Device device, const void* data, int64_t bytes) noexcept;
void tell_freed(c10::Device device, const void* data, int64_t bytes) noexcept;

}  // namespace remat::memory

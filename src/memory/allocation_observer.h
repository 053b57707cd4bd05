// src/memory/allocation_observer.h -- for whoever wants to see every block of a device's memory come and go.
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
};

/// From now on `observer` is told of the blocks of `device`, which is named as its tensors name it, if nobody else
/// observes: returns whether it is.
bool observe_allocations(AllocationObserver& observer, c10::Device device);
/// From now on it is not. Waits for a call in progress.
void stop_observing(AllocationObserver& observer);

/// Around a fork. In the child nobody observes any more.
void lock_observers();
void unlock_observers(bool in_child);

// For the allocators.
void tell_allocated(c10::Device device, const void* data, int64_t bytes) noexcept;
void tell_freed(c10::Device device, const void* data, int64_t bytes) noexcept;

}  // namespace remat::memory

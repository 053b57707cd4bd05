#include "memory/allocation_observer.h"

#include <atomic>

#include "memory/ledger.h"
#include "util/mutex.h"

namespace remat::memory {
namespace {

std::atomic<AllocationObserver*> g_observer{nullptr};
std::atomic<c10::Device> g_device{c10::Device(c10::DeviceType())};  // that it observes
Mutex g_mutex;  // held while it is told, and while somebody begins to observe

bool is_observed(c10::Device device) { return device == g_device.load(std::memory_order_relaxed); }

template <class Tell>
void tell(c10::Device device, Tell&& tell) noexcept {
  if (g_observer.load(std::memory_order_relaxed) == nullptr || !is_observed(device)) return;
  const MutexLock lock(g_mutex);
  AllocationObserver* const observer = g_observer.load(std::memory_order_relaxed);
  if (observer != nullptr && is_observed(device)) tell(*observer);
}

}  // namespace

bool observe_allocations(AllocationObserver& observer, c10::Device device) {
  const MutexLock lock(g_mutex);
  if (g_observer.load(std::memory_order_relaxed) != nullptr) return false;
  g_device.store(device, std::memory_order_relaxed);
  g_observer.store(&observer, std::memory_order_relaxed);
  return true;
}

void stop_observing(AllocationObserver& observer) {
  const MutexLock lock(g_mutex);
  AllocationObserver* known = &observer;
  g_observer.compare_exchange_strong(known, nullptr);
}

/// Unchecked, as the next: between the two the process is copied.
void lock_observers() REMAT_UNCHECKED { g_mutex.lock(); }

void unlock_observers(bool in_child) REMAT_UNCHECKED {
  if (in_child) g_observer.store(nullptr, std::memory_order_relaxed);
  g_mutex.unlock();
}

void tell_allocated(c10::Device device, const void* data, int64_t bytes) noexcept {
  tell(device, [&](AllocationObserver& o) { o.allocated(data, bytes, !FrozenPlain::active()); });
}

void tell_freed(c10::Device device, const void* data, int64_t bytes) noexcept {
  tell(device, [&](AllocationObserver& o) { o.freed(data, bytes, !FrozenPlain::active()); });
}

}  // namespace remat::memory

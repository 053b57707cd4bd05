#include "memory/allocation_observer.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "memory/ledger.h"
#include "util/mutex.h"

namespace remat::memory {
namespace {

struct Entry {
  uint64_t number;  ///< never used again, unlike addresses
  AllocationObserver* observer;
  c10::Device device;
};

std::atomic<int> g_count{0};  // entries, so that nobody waits while there are none
Mutex g_mutex;                // held while observers are told, and while somebody begins to observe
std::vector<Entry> g_entries REMAT_GUARDED_BY(g_mutex);
uint64_t g_last REMAT_GUARDED_BY(g_mutex) = 0;
thread_local uint64_t t_own = 0;  // the number of this thread's

/// Calls `own` for this thread's observer and `other` for the rest; without one, `own` for all.
template <class Own, class Other>
void tell(c10::Device device, Own&& own, Other&& other) noexcept {
  if (g_count.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(g_mutex);
  const auto is_own = [device](const Entry& entry) { return entry.number == t_own && entry.device == device; };
  const bool has_own = std::ranges::any_of(g_entries, is_own);
  for (const Entry& entry : g_entries) {
    if (entry.device != device) continue;
    if (!has_own || is_own(entry)) {
      own(*entry.observer);
    } else {
      other(*entry.observer);
    }
  }
}

}  // namespace

void observe_allocations(AllocationObserver& observer, c10::Device device) {
  const MutexLock lock(g_mutex);
  t_own = ++g_last;
  g_entries.push_back({t_own, &observer, device});
  g_count.store(static_cast<int>(g_entries.size()), std::memory_order_relaxed);
}

void stop_observing(AllocationObserver& observer) {
  const MutexLock lock(g_mutex);
  std::erase_if(g_entries, [&](const Entry& entry) { return entry.observer == &observer; });
  g_count.store(static_cast<int>(g_entries.size()), std::memory_order_relaxed);
}

/// Unchecked, as the next: between the two the process is copied.
void lock_observers() REMAT_UNCHECKED { g_mutex.lock(); }

void unlock_observers(bool in_child) REMAT_UNCHECKED {
  if (in_child) {
    g_entries.clear();
    g_count.store(0, std::memory_order_relaxed);
  }
  g_mutex.unlock();
}

void tell_allocated(c10::Device device, const void* data, int64_t bytes) noexcept {
  const bool plain = !FrozenPlain::active();
  tell(
      device, [&](AllocationObserver& own) { own.allocated(data, bytes, plain); }, [](AllocationObserver&) {});
}

void tell_freed(c10::Device device, const void* data, int64_t bytes) noexcept {
  const bool plain = !FrozenPlain::active();
  tell(
      device, [&](AllocationObserver& own) { own.freed(data, bytes, plain); },
      [&](AllocationObserver& other) { other.freed_elsewhere(data, bytes, plain); });
}

}  // namespace remat::memory

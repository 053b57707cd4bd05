#include "device/adopted_storages.h"

#include <algorithm>
#include <iterator>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COW.h>

#include "device/cpu_blocks.h"
#include "device/file_blocks.h"

namespace remat::memory {

int64_t AdoptedStorages::adopt(c10::StorageImpl& storage) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  // Two threads may meet the same storage at once, and one of them exchanges the deleter: no look at it without the
  // lock.
  const MutexLock lock(mutex_);
  if (data.get_deleter() == counted_ || data.get_deleter() == older_deleter_) return 0;
  if (!data.device().is_cpu() || is_file_block(data)) return 0;
  const int64_t bytes = storage.sym_nbytes().maybe_as_int().value_or(0);
  c10::Allocator* const older = c10::GetDefaultCPUAllocator();
  // Its later resizes are to be counted from the start.
  if (storage.allocator() == older) storage.set_allocator(c10::GetCPUAllocator());
  if (data.get_deleter() == older->raw_deleter()) {
    void* const context = data.get_context();
    if (context != nullptr) older_[context] = bytes;
    if (!data.compare_exchange_deleter(older->raw_deleter(), older_deleter_)) return 0;  // cannot be: see the `if`
    return context == nullptr ? 0 : bytes;
  }

  if (data.get() == nullptr || bytes == 0 || c10::impl::cow::is_cow_data_ptr(data) || owns(data.get())) return 0;
  const bool added =
      foreign_
          .try_emplace(&storage, Foreign{c10::weak_intrusive_ptr<c10::StorageImpl>(
                                             c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage)),
                                         data.get()})
          .second;
  foreign_count_.store(static_cast<int64_t>(foreign_.size()), std::memory_order_relaxed);
  if (!added) return 0;
  Memory& memory = memory_[data.get()];
  ++memory.storages;
  const int64_t before = memory.bytes;
  memory.bytes = std::max(memory.bytes, bytes);
  return memory.bytes - before;
}

int64_t AdoptedStorages::forget(void* context) noexcept {
  const MutexLock lock(mutex_);
  const auto found = older_.find(context);
  if (found == older_.end()) return 0;
  const int64_t bytes = found->second;
  older_.erase(found);
  return bytes;
}

int64_t AdoptedStorages::sweep() noexcept {
  if (foreign_count_.load(std::memory_order_relaxed) == 0) return 0;
  const MutexLock lock(mutex_);
  int64_t bytes = 0;
  for (auto entry = foreign_.begin(); entry != foreign_.end();) {
    if (entry->second.storage.expired()) {
      const auto memory = memory_.find(entry->second.address);
      if (--memory->second.storages == 0) {
        bytes += memory->second.bytes;
        memory_.erase(memory);
      }
      entry = foreign_.erase(entry);
    } else {
      ++entry;
    }
  }
  foreign_count_.store(static_cast<int64_t>(foreign_.size()), std::memory_order_relaxed);
  return bytes;
}

}  // namespace remat::memory

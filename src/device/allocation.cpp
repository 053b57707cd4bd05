#include "device/allocation.h"

#include <atomic>

#include <c10/core/impl/COW.h>

#include "device/arena.h"
#include "device/cpu_ledger.h"
#include "device/device.h"

namespace remat::memory {

Allocation allocation_of(const c10::StorageImpl& storage) noexcept {
  const at::DataPtr& data = storage.data_ptr();
  if (c10::impl::cow::is_cow_data_ptr(data)) return {nullptr, Allocation::kCopyOnWrite};
  return {data.get(), device::kind_of(data.device()).serial_of(storage)};
}

bool is_own_memory(const c10::StorageImpl& storage) noexcept {
  return storage.data_ptr().get_deleter() == &release_block;
}

std::shared_ptr<const LastContents> watch_contents(const c10::StorageImpl& storage, uint64_t checksum) {
  const at::DataPtr& data = storage.data_ptr();
  if (device::has_streams(storage.device_type())) {
    return data.get() == nullptr ? nullptr : watch_device_block(data.get(), checksum);
  }
  const bool ours = is_own_memory(storage);
  const bool end_is_seen = ours || data.get_deleter() == &release_older;
  if (!end_is_seen || data.get_context() == nullptr) return nullptr;
  if (ours) std::atomic_ref(Block::of(data.get_context())->watched).store(true, std::memory_order_relaxed);
  return watch_block(data.get_context());
}

}  // namespace remat::memory

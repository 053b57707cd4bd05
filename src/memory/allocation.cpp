#include "memory/allocation.h"

#include <mutex>
#include <unordered_map>

#include <c10/core/impl/COW.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "memory/arena.h"
#include "memory/cpu_ledger.h"
#include "memory/fork.h"

namespace remat::memory {
namespace {

/// The watched blocks, by address.
struct Watched {
  std::mutex mutex;
  std::unordered_map<const void*, std::weak_ptr<LastContents>> blocks;
};

Watched& watched() {
  static auto* watched = [] {
    auto* const made = new Watched;  // tensors may outlive static destruction
    free_in_children(made->mutex);
    return made;
  }();
  return *watched;
}

std::atomic<uint64_t> g_ends{0};

}  // namespace

Allocation allocation_of(const c10::StorageImpl& storage) noexcept {
  const at::DataPtr& data = storage.data_ptr();
  if (c10::impl::cow::is_cow_data_ptr(data)) return {nullptr, Allocation::kCopyOnWrite};
  const bool ours = is_own_memory(storage) && data.get_context() != nullptr;
  return {data.get(), ours ? Block::of(data.get_context())->serial : 0};
}

bool is_own_memory(const c10::StorageImpl& storage) noexcept {
  return storage.data_ptr().get_deleter() == &release_block;
}

uint64_t next_serial() noexcept {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t checksum_of(const void* data, size_t bytes) noexcept {
  const uint64_t result = XXH3_64bits(data, bytes);
  return result == 0 ? 1 : result;
}

std::shared_ptr<const LastContents> watch_contents(const c10::StorageImpl& storage) {
  const at::DataPtr& data = storage.data_ptr();
  const bool ours = is_own_memory(storage);
  const bool end_is_seen = ours || data.get_deleter() == &release_older;
  if (!end_is_seen || data.get_context() == nullptr) return nullptr;
  const std::lock_guard lock(watched().mutex);
  if (ours) std::atomic_ref(Block::of(data.get_context())->watched).store(true, std::memory_order_relaxed);
  auto& entry = watched().blocks[data.get_context()];
  if (auto known = entry.lock()) return known;
  auto contents = std::make_shared<LastContents>();
  entry = contents;
  return contents;
}

void tell_end(const void* block, size_t bytes) noexcept {
  std::shared_ptr<LastContents> contents;
  {
    const std::lock_guard lock(watched().mutex);
    const auto entry = watched().blocks.find(block);
    if (entry == watched().blocks.end()) return;
    contents = entry->second.lock();
    watched().blocks.erase(entry);
  }
  if (!contents) return;
  contents->checksum_.store(checksum_of(block, bytes), std::memory_order_release);
  g_ends.fetch_add(1, std::memory_order_release);
}

uint64_t watched_ends() noexcept { return g_ends.load(std::memory_order_acquire); }

}  // namespace remat::memory

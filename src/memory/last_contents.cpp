#include "memory/last_contents.h"

#include <unordered_map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "memory/fork.h"
#include "util/mutex.h"

namespace remat::memory {
namespace {

/// The watched blocks, by address.
struct Watched {
  Mutex mutex;
  std::unordered_map<const void*, std::weak_ptr<LastContents>> blocks REMAT_GUARDED_BY(mutex);
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

uint64_t checksum_of(const void* data, size_t bytes) noexcept {
  const uint64_t result = XXH3_64bits(data, bytes);
  return result == 0 ? 1 : result;
}

std::shared_ptr<const LastContents> watch_block(const void* block) {
  const MutexLock lock(watched().mutex);
  auto& entry = watched().blocks[block];
  if (auto known = entry.lock()) return known;
  auto contents = std::make_shared<LastContents>();
  entry = contents;
  return contents;
}

void tell_end(const void* block, size_t bytes) noexcept {
  std::shared_ptr<LastContents> contents;
  {
    const MutexLock lock(watched().mutex);
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

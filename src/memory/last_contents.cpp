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
  static auto& watched = never_destroyed<Watched>();
  return watched;
}

/// Those of devices.
struct WatchedOnDevices {
  Mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<std::atomic<bool>>> ends REMAT_GUARDED_BY(mutex);  ///< by address
  std::atomic<size_t> size{0};
};

WatchedOnDevices& watched_on_devices() {
  static auto& watched = never_destroyed<WatchedOnDevices>();
  return watched;
}

std::atomic<uint64_t> g_ends{0};

}  // namespace

uint64_t checksum_of(const void* data, size_t bytes) noexcept { return XXH3_64bits(data, bytes) | uint64_t{1} << 63U; }

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

std::shared_ptr<const LastContents> watch_device_block(const void* block, uint64_t checksum) {
  auto& watched = watched_on_devices();
  const MutexLock lock(watched.mutex);
  auto& end = watched.ends[block];
  if (end == nullptr) end = std::make_shared<std::atomic<bool>>(false);
  watched.size = watched.ends.size();
  return std::make_shared<const LastContents>(checksum, end);
}

void tell_end_on_device(const void* block) noexcept {
  auto& watched = watched_on_devices();
  if (watched.size == 0) return;
  const MutexLock lock(watched.mutex);
  const auto end = watched.ends.find(block);
  if (end == watched.ends.end()) return;
  end->second->store(true, std::memory_order_release);
  watched.ends.erase(end);
  watched.size = watched.ends.size();
  g_ends.fetch_add(1, std::memory_order_release);
}

uint64_t watched_ends() noexcept { return g_ends.load(std::memory_order_acquire); }

}  // namespace remat::memory

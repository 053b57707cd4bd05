#include "device/caching_allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "device/block_pool.h"
#include "device/device_memory.h"
#include "device/stream.h"

namespace remat::simulated {
namespace {

using Stats = c10::CachingDeviceAllocator::DeviceStats;

std::atomic<bool> tells_memory = true;

/// One device's blocks.
class DeviceBlocks {
 public:
  explicit DeviceBlocks(int device) : device_(device), pool_(device) {}

  void* allocate(size_t bytes, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    reuse_reached(false);
    Block* block = pool_.take(bytes, stream);
    if (block == nullptr) {
      ++pool_.stats().num_alloc_retries;
      give_back_cache();
      block = pool_.take(bytes, stream);
    }
    if (block == nullptr) refuse(bytes);
    alive_[block->address] = block;
    // In the order of the stream that will use it, under the lock: another thread may be given it next.
    WorkQueue::of(stream).submit([to = DeviceMemory::for_kernels(block->address), bytes] { memset(to, 0xff, bytes); });
    report(block, 1);
    return block->address;
  }

  void free(void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = alive_.find(address);
    TORCH_INTERNAL_ASSERT(found != alive_.end(), "[simulated] a block was freed twice");
    Block* block = found->second;
    alive_.erase(found);
    pool_.count_freed(*block);
    report(block, -1);
    if (block->readers.empty()) return pool_.put_back(block);
    for (const c10::Stream& stream : block->readers) waiting_.emplace_back(WorkQueue::of(stream).mark(), block);
    block->waits_for = block->readers.size();
    block->readers.clear();
  }

  void record_stream(void* address, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto found = alive_.find(address);
    if (found == alive_.end() || found->second->stream == stream) return;
    std::vector<c10::Stream>& readers = found->second->readers;
    if (std::find(readers.begin(), readers.end(), stream) == readers.end()) readers.push_back(stream);
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    give_back_cache();
  }

  /// Calls `use` with the statistics, to read or to reset them.
  template <class Use>
  auto with_stats(Use use) {
    const std::lock_guard lock(mutex_);
    return use(pool_.stats());
  }

 private:
  /// Blocks that other streams read return to the pool when those have reached the marks that were set at their end.
  void reuse_reached(bool wait) {
    std::deque<std::pair<std::shared_ptr<Mark>, Block*>> left;
    for (auto& [mark, block] : waiting_) {
      if (wait) mark->wait();
      if (!mark->reached()) {
        left.emplace_back(std::move(mark), block);
      } else if (--block->waits_for == 0) {
        pool_.put_back(block);
      }
    }
    waiting_ = std::move(left);
  }

  void give_back_cache() {
    reuse_reached(true);
    synchronize_device(device_, false);  // as cudaFree does: a free block's last kernels may still be queued
    pool_.release_segments();
  }

  [[noreturn]] void refuse(size_t bytes) {
    ++pool_.stats().num_ooms;
    const DeviceMemory& memory = DeviceMemory::of(device_);
    const int64_t allocated = pool_.stats().allocated_bytes[0].current;
    C10_THROW_ERROR(OutOfMemoryError,
                    c10::str("[simulated] device ", device_, " is out of memory: ", bytes, " bytes were asked for, of ",
                             memory.capacity(), " bytes ", memory.reserved(), " are reserved, and tensors have ",
                             allocated, "; use smaller tensors, or a larger set_capacity()"));
  }

  void report(const Block* block, int sign) {
    if (!c10::memoryProfilingEnabled()) return;
    c10::reportMemoryUsageToProfiler(block->address, sign * static_cast<int64_t>(block->bytes),
                                     static_cast<size_t>(pool_.stats().allocated_bytes[0].current),
                                     static_cast<size_t>(pool_.stats().reserved_bytes[0].current),
                                     c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_)));
  }

  std::mutex mutex_;
  int device_;
  BlockPool pool_;
  std::unordered_map<void*, Block*> alive_;
  std::deque<std::pair<std::shared_ptr<Mark>, Block*>> waiting_;
};

DeviceBlocks& blocks_of(int device) {
  static auto* const all = [] {
    auto* made = new std::array<DeviceBlocks*, kDevices>;
    for (int index = 0; index < kDevices; ++index) (*made)[static_cast<size_t>(index)] = new DeviceBlocks(index);
    return made;
  }();
  TORCH_CHECK(device >= 0 && device < kDevices, "[simulated] there is no device ", device);
  return *(*all)[static_cast<size_t>(device)];
}

void free_block(void* address) {
  if (address != nullptr) blocks_of(DeviceMemory::device_of(address)).free(address);
}

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    void* address = bytes == 0 ? nullptr : blocks_of(device).allocate(bytes, current_stream(device));
    return {address, address, &free_block, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  /// As cudaMemcpy: in the order of the default stream, whichever is current, and over when it returns.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const int device = std::max(DeviceMemory::device_of(to), DeviceMemory::device_of(from));
    WorkQueue& queue = WorkQueue::of(default_stream(device));
    queue.submit([to = DeviceMemory::for_kernels(to), from = DeviceMemory::for_kernels(from), bytes] {
      memcpy(to, from, bytes);
    });
    queue.synchronize();
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    for (int device = 0; device < kDevices; ++device) blocks_of(device).empty_cache();
  }

  /// As CUDA's: a block that another allocator has wrapped is not known, and nothing says so.
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() == nullptr || data.get_deleter() != &free_block) return;
    blocks_of(DeviceMemory::device_of(data.get())).record_stream(data.get(), stream);
  }

  Stats getDeviceStats(c10::DeviceIndex device) override {
    return blocks_of(device).with_stats([](const Stats& stats) { return stats; });
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    blocks_of(device).with_stats([](Stats& stats) {
      for (auto* counts : all_counts(stats)) {
        for (auto& count : *counts) count.reset_accumulated();
      }
      stats.num_alloc_retries = stats.num_ooms = 0;
    });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    blocks_of(device).with_stats([](Stats& stats) {
      for (auto* counts : all_counts(stats)) {
        for (auto& count : *counts) count.reset_peak();
      }
    });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    if (!tells_memory.load()) return DeviceAllocator::getMemoryInfo(device);
    const DeviceMemory& memory = DeviceMemory::of(device);
    const size_t total = memory.capacity();
    return {total - std::min(total, memory.reserved()), total};
  }

 private:
  static std::array<c10::CachingAllocator::StatArray*, 9> all_counts(Stats& stats) {
    return {&stats.allocation,     &stats.segment,         &stats.active,
            &stats.inactive_split, &stats.allocated_bytes, &stats.reserved_bytes,
            &stats.active_bytes,   &stats.requested_bytes, &stats.inactive_split_bytes};
  }
};

}  // namespace

c10::DeviceAllocator& caching_allocator() {
  static auto* const allocator = new CachingAllocator;
  return *allocator;
}

void set_tells_memory(bool tells) { tells_memory.store(tells); }

}  // namespace remat::simulated

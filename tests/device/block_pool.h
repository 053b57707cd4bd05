// tests/device/block_pool.h -- the segments of one simulated device, and the blocks that they are cut into.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

namespace remat::simulated {

struct Block {
  c10::Stream stream;  // the one whose tensors may have it
  char* address = nullptr;
  size_t bytes = 0;      // a multiple of 512
  size_t requested = 0;  // of these, by a tensor that is alive
  bool small = false;
  bool taken = false;
  Block* previous = nullptr;  // its neighbours in the segment
  Block* next = nullptr;
  std::vector<c10::Stream> readers = {};  // other streams that used it
  size_t waits_for = 0;                   // of these, after its end
};

/// Not thread-safe: the allocator's lock is held.
class BlockPool {
 public:
  explicit BlockPool(int device) : device_(device) {}

  /// A block of at least `bytes` for a stream; nullptr where the device has no memory left.
  Block* take(size_t bytes, const c10::Stream& stream);
  /// Its tensor is gone, its memory possibly in use yet.
  void count_freed(Block& block);
  /// Makes a block that was counted as freed one that can be taken.
  void put_back(Block* block);
  /// Gives segments that are free as a whole back to the device.
  void release_segments();

  c10::CachingDeviceAllocator::DeviceStats& stats() { return stats_; }

 private:
  struct ByStreamAndSize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeBlocks = std::set<Block*, ByStreamAndSize>;

  Block* find_free(size_t bytes, const c10::Stream& stream, bool small);
  Block* new_segment(size_t bytes, const c10::Stream& stream, bool small);
  void cut(Block* block, size_t bytes);
  void join(Block* block, Block* with);
  FreeBlocks& free_blocks(const Block& block) { return block.small ? small_ : large_; }
  void insert_free(Block* block);
  void erase_free(Block* block);

  int device_;
  FreeBlocks small_;
  FreeBlocks large_;
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

}  // namespace remat::simulated

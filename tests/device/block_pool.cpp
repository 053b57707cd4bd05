#include "device/block_pool.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "device/device_memory.h"

namespace remat::simulated {
namespace {

// CUDA's numbers.
constexpr size_t kUnit = 512;
constexpr size_t kSmall = size_t{1} << 20;  // requests up to this are cut from small segments
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kOwnSegment = size_t{10} << 20;  // requests from this on have segments of their own
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kGranularity = size_t{2} << 20;

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Counts in the sum over all blocks, and in that of small or large ones.
void add(c10::CachingAllocator::StatArray& counts, bool small, size_t amount) {
  counts[0].increase(amount);
  counts[small ? 1 : 2].increase(amount);
}

void subtract(c10::CachingAllocator::StatArray& counts, bool small, size_t amount) {
  counts[0].decrease(amount);
  counts[small ? 1 : 2].decrease(amount);
}

bool split(const Block& block) { return block.previous != nullptr || block.next != nullptr; }

}  // namespace

bool BlockPool::ByStreamAndSize::operator()(const Block* a, const Block* b) const {
  return std::tuple(a->stream.id(), a->bytes, reinterpret_cast<uintptr_t>(a->address)) <
         std::tuple(b->stream.id(), b->bytes, reinterpret_cast<uintptr_t>(b->address));
}

void BlockPool::insert_free(Block* block) {
  free_blocks(*block).insert(block);
  if (!split(*block)) return;
  add(stats_.inactive_split, block->small, 1);
  add(stats_.inactive_split_bytes, block->small, block->bytes);
}

void BlockPool::erase_free(Block* block) {
  free_blocks(*block).erase(block);
  if (!split(*block)) return;
  subtract(stats_.inactive_split, block->small, 1);
  subtract(stats_.inactive_split_bytes, block->small, block->bytes);
}

Block* BlockPool::take(size_t bytes, const c10::Stream& stream) {
  const size_t size = rounded(std::max(bytes, kUnit), kUnit);
  const bool small = size <= kSmall;
  Block* block = find_free(size, stream, small);
  if (block == nullptr) block = new_segment(size, stream, small);
  if (block == nullptr) return nullptr;
  const size_t rest = block->bytes - size;
  if (small ? rest >= kUnit : rest > kSmall) cut(block, size);
  block->taken = true;
  block->requested = bytes;
  add(stats_.allocation, small, 1);
  add(stats_.active, small, 1);
  add(stats_.allocated_bytes, small, block->bytes);
  add(stats_.active_bytes, small, block->bytes);
  add(stats_.requested_bytes, small, bytes);
  return block;
}

Block* BlockPool::find_free(size_t bytes, const c10::Stream& stream, bool small) {
  FreeBlocks& blocks = small ? small_ : large_;
  Block key{stream};
  key.bytes = bytes;
  const auto found = blocks.lower_bound(&key);
  if (found == blocks.end() || (*found)->stream != stream) return nullptr;
  Block* block = *found;
  erase_free(block);
  return block;
}

Block* BlockPool::new_segment(size_t bytes, const c10::Stream& stream, bool small) {
  const size_t size = small ? kSmallSegment : bytes < kOwnSegment ? kLargeSegment : rounded(bytes, kGranularity);
  void* segment = DeviceMemory::of(device_).reserve(size);
  if (segment == nullptr) return nullptr;
  add(stats_.segment, small, 1);
  add(stats_.reserved_bytes, small, size);
  ++stats_.num_device_alloc;
  auto* block = new Block{stream};
  block->address = static_cast<char*>(segment);
  block->bytes = size;
  block->small = small;
  return block;
}

void BlockPool::cut(Block* block, size_t bytes) {
  auto* rest = new Block{block->stream};
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->small = block->small;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  insert_free(rest);
}

void BlockPool::count_freed(Block& block) {
  subtract(stats_.allocation, block.small, 1);
  subtract(stats_.allocated_bytes, block.small, block.bytes);
  subtract(stats_.requested_bytes, block.small, block.requested);
  block.requested = 0;
}

void BlockPool::put_back(Block* block) {
  subtract(stats_.active, block->small, 1);
  subtract(stats_.active_bytes, block->small, block->bytes);
  block->taken = false;
  for (Block* neighbour : {block->previous, block->next}) {
    if (neighbour != nullptr && !neighbour->taken) join(block, neighbour);
  }
  insert_free(block);
}

void BlockPool::join(Block* block, Block* with) {
  erase_free(with);
  if (with == block->previous) {
    block->address = with->address;
    block->previous = with->previous;
    if (block->previous != nullptr) block->previous->next = block;
  } else {
    block->next = with->next;
    if (block->next != nullptr) block->next->previous = block;
  }
  block->bytes += with->bytes;
  delete with;
}

void BlockPool::release_segments() {
  for (FreeBlocks* blocks : {&small_, &large_}) {
    for (auto at = blocks->begin(); at != blocks->end();) {
      Block* block = *at;
      if (split(*block)) {
        ++at;
        continue;
      }
      at = blocks->erase(at);
      subtract(stats_.segment, block->small, 1);
      subtract(stats_.reserved_bytes, block->small, block->bytes);
      ++stats_.num_device_free;
      DeviceMemory::of(device_).release(block->address);
      delete block;
    }
  }
}

}  // namespace remat::simulated

#include "device/arena.h"

#include <algorithm>
#include <bit>

#include <sys/mman.h>

#include "memory/limits.h"

namespace remat::memory {

/// A mapping of address space; its blocks follow this header without gaps.
struct alignas(64) Block::Region {
  Region* next;
  size_t length;

  Block* first() noexcept { return reinterpret_cast<Block*>(this + 1); }
  std::byte* end() noexcept { return reinterpret_cast<std::byte*>(this) + length; }
};

namespace {

constexpr size_t kPage = 4096;
/// Address space costs nothing until it is touched; large regions let neighbours coalesce.
constexpr size_t kRegion = size_t{1} << 30;
/// Rests below this stay part of the block in front of them.
constexpr size_t kSmallestRest = 4096;

std::byte* address(Block* block) noexcept { return reinterpret_cast<std::byte*>(block); }

constexpr size_t round_up(size_t value, size_t step) noexcept { return (value + step - 1) / step * step; }

/// Where the process may map so much and no more (ulimit -v), each block is a region and goes when it is free: holes in
/// larger ones would be missing elsewhere.
bool keeps_regions() noexcept { return address_space_limit() == INT64_MAX; }

Block::Region* map(size_t length) noexcept {
  // Not MAP_NORESERVE: the system shall refuse what it can never provide, as it does for malloc.
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Worth 2 to 5 % of a step where pages are kept. A system without huge pages says no, which is no harm.
  madvise(memory, length, MADV_HUGEPAGE);
  return static_cast<Block::Region*>(memory);
}

}  // namespace

Arena::~Arena() {
  while (regions_ != nullptr) {
    Block::Region* next = regions_->next;
    munmap(regions_, regions_->length);
    regions_ = next;
  }
}

size_t Arena::list_of(size_t span) noexcept {
  const auto power = static_cast<size_t>(std::bit_width(span | 8U)) - 1;  // no span is below 8: tells analyzers
  return power * 8 + ((span >> (power - 3)) & 7);
}

Block* Arena::after(const Block* block) noexcept {
  auto* end = address(const_cast<Block*>(block)) + block->span;
  return end == block->region->end() ? nullptr : reinterpret_cast<Block*>(end);
}

Block* Arena::best_fit(Lists& lists, size_t span) noexcept {
  for (size_t list = list_of(span); list < kLists; ++list) {
    Block* best = nullptr;
    for (Block* block = lists[list]; block != nullptr; block = block->next) {
      if (block->span >= span && (best == nullptr || block->span < best->span)) best = block;
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

void Arena::insert(Block* block, State state) noexcept {
  Block*& head = lists(state)[list_of(block->span)];
  block->state = state;
  block->previous = nullptr;
  block->next = head;
  if (head != nullptr) head->previous = block;
  head = block;
  bytes_of(state).fetch_add(static_cast<int64_t>(block->span), std::memory_order_relaxed);
}

void Arena::remove(Block* block) noexcept {
  if (block->next != nullptr) block->next->previous = block->previous;
  (block->previous != nullptr ? block->previous->next : lists(block->state)[list_of(block->span)]) = block->next;
  bytes_of(block->state).fetch_sub(static_cast<int64_t>(block->span), std::memory_order_relaxed);
  block->state = State::kLive;
}

void Arena::split(Block* block, size_t span, State rest_state) noexcept {
  if (block->span < span + kSmallestRest) return;
  auto* rest = reinterpret_cast<Block*>(address(block) + span);
  rest->span = block->span - span;
  rest->before = block;
  rest->region = block->region;
  block->span = span;
  if (Block* behind = after(rest)) behind->before = rest;
  insert(merge(rest, rest_state), rest_state);
}

/// Joins `block`, which is in no list, with its free neighbours of kind `state`.
Block* Arena::merge(Block* block, State state) noexcept {
  if (Block* behind = after(block); behind != nullptr && behind->state == state) {
    remove(behind);
    block->span += behind->span;
  }
  if (block->before != nullptr && block->before->state == state) {
    Block* front = block->before;
    remove(front);
    front->span += block->span;
    block = front;
  }
  if (Block* behind = after(block)) behind->before = block;
  return block;
}

Block* Arena::take(size_t span) noexcept {
  for (Lists* lists : {&dirty_, &clean_}) {
    if (Block* block = best_fit(*lists, span)) {
      const State state = block->state;
      remove(block);
      split(block, span, state);
      return block;
    }
  }
  return nullptr;
}

bool Arena::grow(size_t span, int64_t spare) noexcept {
  const size_t least = round_up(sizeof(Block::Region) + span, kPage);
  size_t length = least;
  if (keeps_regions()) {
    length = std::max(least, kRegion);
  } else if (spare > 0 && address_space().left() < static_cast<int64_t>(least) + spare) {
    return false;
  }
  Block::Region* region = map(length);
  if (region == nullptr && length > least) region = map(length = least);  // little address space, or no overcommit
  if (region == nullptr) return false;
  region->next = regions_;
  region->length = length;
  regions_ = region;
  Block* block = region->first();
  block->span = length - sizeof(Block::Region);
  block->before = nullptr;
  block->region = region;
  insert(block, State::kClean);
  return true;
}

Block* Arena::allocate(size_t bytes, int64_t spare) noexcept {
  if (bytes > PTRDIFF_MAX - kRegion) return nullptr;
  const size_t span = std::max(round_up(sizeof(Block) + bytes, alignof(Block)), kSmallestRest);
  const MutexLock lock(mutex_);
  Block* block = take(span);
  if (block == nullptr && grow(span, spare)) block = take(span);
  if (block == nullptr) {
    purge_locked(SIZE_MAX);
    unmap_free_regions();
    if (grow(span, spare)) block = take(span);
  }
  if (block != nullptr) block->bytes = bytes;
  return block;
}

void Arena::free(Block* block) noexcept {
  const MutexLock lock(mutex_);
  block = merge(block, State::kDirty);
  if (block->before == nullptr && after(block) == nullptr && !keeps_regions()) {
    insert(block, State::kClean);  // about to have no pages
    unmap_free_regions();
  } else {
    insert(block, State::kDirty);
  }
}

void Arena::purge(size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  purge_locked(bytes);
  if (bytes == SIZE_MAX) unmap_free_regions();
}

void Arena::purge_locked(size_t bytes) noexcept {
  while (bytes > 0) {
    // The block that fits best, or else the largest there is: few calls of the system, few holes.
    Block* block = best_fit(dirty_, std::max(bytes, kSmallestRest));
    if (block == nullptr) {
      for (size_t list = kLists; list-- > 0 && block == nullptr;) block = dirty_[list];
    }
    if (block == nullptr) return;
    remove(block);
    if (bytes < block->span) split(block, round_up(std::max(bytes, kSmallestRest), kPage), State::kDirty);
    bytes -= std::min(bytes, block->span);
    // The page with the header stays, as does the one that the block shares with the next.
    const auto begin = round_up(reinterpret_cast<uintptr_t>(block->data()), kPage);
    const auto end = (reinterpret_cast<uintptr_t>(block) + block->span) / kPage * kPage;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): whole pages have no other way to be named
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    insert(merge(block, State::kClean), State::kClean);
  }
}

void Arena::unmap_free_regions() noexcept {
  for (Block::Region** link = &regions_; *link != nullptr;) {
    Block::Region* region = *link;
    Block* first = region->first();
    if (first->state == State::kClean && after(first) == nullptr) {
      remove(first);
      *link = region->next;
      munmap(region, region->length);
    } else {
      link = &region->next;
    }
  }
}

bool Arena::owns(const void* address) noexcept {
  const MutexLock lock(mutex_);
  for (Block::Region* region = regions_; region != nullptr; region = region->next) {
    const auto begin = reinterpret_cast<uintptr_t>(region);
    if (const auto place = reinterpret_cast<uintptr_t>(address); place >= begin && place < begin + region->length) {
      return true;
    }
  }
  return false;
}

}  // namespace remat::memory

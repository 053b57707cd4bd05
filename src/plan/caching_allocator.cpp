#include "plan/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace remat {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kUnit = 512;
constexpr int64_t kMostSmall = kMebibyte;
constexpr int64_t kSmallSegment = 2 * kMebibyte;
/// Larger requests have a segment of their own.
constexpr int64_t kLeastAlone = 10 * kMebibyte;
constexpr int64_t kSegmentUnit = 2 * kMebibyte;
/// Of an expandable segment: more than any device has.
constexpr int64_t kAddresses = int64_t{1} << 42;

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// To a multiple of the `divisions`th part of the power of two below.
int64_t rounded_to_division(int64_t bytes, int64_t divisions) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  if (power == bytes) return bytes;
  const int64_t part = power / divisions;
  return part == 0 ? 2 * power : rounded_up(bytes, part);
}

}  // namespace

int64_t CachingAllocator::rounded(int64_t bytes) const {
  if (bytes < kUnit) return kUnit;
  const auto place = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(bytes))) - 21;  // 0: from 1 MiB on
  const auto last = static_cast<int64_t>(settings_.roundup_divisions.size()) - 1;
  const int64_t divisions = settings_.roundup_divisions[static_cast<size_t>(std::clamp<int64_t>(place, 0, last))];
  if (divisions > 1 && bytes > kUnit * divisions) return rounded_to_division(bytes, divisions);
  return rounded_up(bytes, kUnit);
}

int64_t CachingAllocator::segment_bytes(int64_t request) const {
  const int64_t bytes = rounded(request);
  if (bytes <= kMostSmall) return kSmallSegment;
  if (bytes < kLeastAlone) return settings_.large_segment;
  return rounded_up(bytes, kSegmentUnit);
}

std::optional<int64_t> CachingAllocator::allocate(int64_t bytes) {
  bytes = rounded(bytes);
  const bool small = bytes <= kMostSmall;
  auto found = find_free(small, bytes);
  if (!found) found = take_segment(small, bytes);
  if (!found && release_oversized(small, bytes)) found = take_segment(small, bytes);
  if (!found) {
    ++retries_;
    release_cached();
    found = take_segment(small, bytes);
  }
  if (!found) return std::nullopt;
  const Blocks::iterator block = *found;
  unlist(block);
  const int64_t rest = block->second.bytes - bytes;
  const bool divides =
      small || settings_.expandable_segments ? rest >= kUnit : bytes < settings_.max_split && rest > kMostSmall;
  if (divides) list(divide(block, bytes));
  block->second.use = Use::kTaken;
  allocated_ += block->second.bytes;
  allocated_peak_ = std::max(allocated_peak_, allocated_);
  return block->first;
}

void CachingAllocator::free(int64_t address) {
  const auto block = blocks_.find(address);
  allocated_ -= block->second.bytes;
  block->second.use = Use::kFree;
  list(join(block));
}

void CachingAllocator::reset_peaks() {
  allocated_peak_ = allocated_;
  reserved_peak_ = reserved_;
}

/// The smallest that is large enough.
std::optional<CachingAllocator::Blocks::iterator> CachingAllocator::find_free(bool small, int64_t bytes) {
  const Pool& pool = pools_[small ? 1 : 0];
  auto found = pool.free.lower_bound({bytes, INT64_MIN});
  if (found == pool.free.end()) return std::nullopt;
  if (settings_.expandable_segments) {
    // One that can grow counts as large as it can become, though only the next ones are looked at.
    const auto size_of = [this](const std::pair<int64_t, int64_t>& listed) {
      const auto after = neighbour(blocks_.find(listed.second), /*before=*/false);
      return listed.first + (after != blocks_.end() && after->second.use == Use::kUnmapped ? after->second.bytes : 0);
    };
    for (auto next = std::next(found); next != pool.free.end() && size_of(*next) < size_of(*found); ++next)
      found = next;
  }
  const bool divides = bytes < settings_.max_split;
  if (divides && found->first >= settings_.max_split) return std::nullopt;
  if (!divides && found->first >= bytes + settings_.max_rounding) return std::nullopt;
  return blocks_.find(found->second);
}

std::optional<CachingAllocator::Blocks::iterator> CachingAllocator::take_segment(bool small, int64_t bytes) {
  const int64_t size = segment_bytes(bytes);
  if (reserved_ > limit_ - size) return std::nullopt;
  if (settings_.expandable_segments) return take_expandable(small, bytes);
  change_reserved(size);
  return add(size, small, Use::kFree);
}

/// Maps what is missing behind, or in front of, what is free.
CachingAllocator::Blocks::iterator CachingAllocator::take_expandable(bool small, int64_t bytes) {
  auto block = room_in_expandable(small, bytes);
  if (block->second.use == Use::kUnmapped) block = map(block, std::min(block->second.bytes, bytes));
  while (block->second.bytes < bytes) {
    const auto after = neighbour(block, /*before=*/false);
    block = map(after, std::min(bytes - block->second.bytes, after->second.bytes));
  }
  return block;
}

/// The lowest block, free or not mapped, from which on enough is not in use.
CachingAllocator::Blocks::iterator CachingAllocator::room_in_expandable(bool small, int64_t bytes) {
  const Pool& pool = pools_[small ? 1 : 0];
  for (const int64_t address : pool.unmapped) {
    auto first = blocks_.find(address);
    const auto before = neighbour(first, /*before=*/true);
    if (before != blocks_.end() && before->second.use != Use::kTaken) first = before;
    int64_t room = 0;
    for (auto block = first; block != blocks_.end() && block->second.use != Use::kTaken && room < bytes;
         block = neighbour(block, /*before=*/false)) {
      room += block->second.bytes;
    }
    if (room >= bytes) return first;
  }
  return add(kAddresses, small, Use::kUnmapped);
}

/// Behind all that was there before.
CachingAllocator::Blocks::iterator CachingAllocator::add(int64_t bytes, bool small, Use use) {
  const auto block = blocks_.emplace_hint(blocks_.end(), end_, Block{bytes, segments_++, small, use});
  end_ += bytes;
  list(block);
  return block;
}

CachingAllocator::Blocks::iterator CachingAllocator::map(Blocks::iterator block, int64_t bytes) {
  bytes = rounded_up(bytes, block->second.small ? kSmallSegment : settings_.large_segment);
  unlist(block);
  if (bytes < block->second.bytes) list(divide(block, bytes));
  change_reserved(block->second.bytes);
  block->second.use = Use::kFree;
  block = join(block);
  list(block);
  return block;
}

/// Whole pages of it.
void CachingAllocator::unmap(Blocks::iterator block) {
  const int64_t page = block->second.small ? kSmallSegment : settings_.large_segment;
  const auto segment_begin = [&] {
    auto first = block;
    for (auto before = neighbour(first, true); before != blocks_.end(); before = neighbour(first, true)) first = before;
    return first->first;
  }();
  const int64_t from = segment_begin + rounded_up(block->first - segment_begin, page);
  const int64_t to = segment_begin + (block->first + block->second.bytes - segment_begin) / page * page;
  if (from >= to) return;
  unlist(block);
  if (from > block->first) {
    const auto rest = divide(block, from - block->first);
    list(block);
    block = rest;
  }
  if (to < block->first + block->second.bytes) list(divide(block, to - block->first));
  change_reserved(-block->second.bytes);
  block->second.use = Use::kUnmapped;
  block = join(block);
  const bool is_whole = neighbour(block, true) == blocks_.end() && neighbour(block, false) == blocks_.end();
  if (is_whole) {
    blocks_.erase(block);
  } else {
    list(block);
  }
}

void CachingAllocator::release_cached() {
  for (const bool small : {false, true}) {
    const auto cached = pools_[small ? 1 : 0].free;
    for (const auto& [bytes, address] : cached) {
      const auto block = blocks_.find(address);
      if (settings_.expandable_segments) {
        unmap(block);
      } else if (neighbour(block, true) == blocks_.end() && neighbour(block, false) == blocks_.end()) {
        release(block);
      }
    }
  }
}

/// Of blocks that are not divided: one that is large enough, or the largest until they are. Whether they were.
bool CachingAllocator::release_oversized(bool small, int64_t bytes) {
  if (settings_.max_split == AllocatorSettings::kUnlimited) return false;
  const auto& free = pools_[small ? 1 : 0].free;
  bytes = std::max(bytes, settings_.max_split);
  const auto enough = free.lower_bound({bytes, INT64_MIN});
  if (enough != free.end()) {
    release(blocks_.find(enough->second));
    return true;
  }
  int64_t released = 0;
  while (released < bytes && !free.empty() && free.rbegin()->first >= settings_.max_split) {
    released += free.rbegin()->first;
    release(blocks_.find(free.rbegin()->second));
  }
  return released >= bytes;
}

/// A whole segment.
void CachingAllocator::release(Blocks::iterator block) {
  unlist(block);
  change_reserved(-block->second.bytes);
  blocks_.erase(block);
}

/// In the same segment, or none: blocks_.end().
CachingAllocator::Blocks::iterator CachingAllocator::neighbour(Blocks::iterator block, bool before) {
  if (before && block == blocks_.begin()) return blocks_.end();
  const auto other = before ? std::prev(block) : std::next(block);
  return other != blocks_.end() && other->second.segment == block->second.segment ? other : blocks_.end();
}

/// What is left behind `bytes`. Neither of the two is listed.
CachingAllocator::Blocks::iterator CachingAllocator::divide(Blocks::iterator block, int64_t bytes) {
  Block rest = block->second;
  rest.bytes -= bytes;
  block->second.bytes = bytes;
  return blocks_.emplace_hint(std::next(block), block->first + bytes, rest);
}

/// With neighbours of the same use, which are not listed any more; nor is the block itself.
CachingAllocator::Blocks::iterator CachingAllocator::join(Blocks::iterator block) {
  const auto joins = [&](Blocks::iterator other) {
    return other != blocks_.end() && other->second.use == block->second.use;
  };
  if (const auto before = neighbour(block, true); joins(before)) {
    unlist(before);
    before->second.bytes += block->second.bytes;
    blocks_.erase(block);
    block = before;
  }
  if (const auto after = neighbour(block, false); joins(after)) {
    unlist(after);
    block->second.bytes += after->second.bytes;
    blocks_.erase(after);
  }
  return block;
}

void CachingAllocator::list(Blocks::iterator block) {
  Pool& pool = pool_of(block->second);
  if (block->second.use == Use::kUnmapped) {
    pool.unmapped.insert(block->first);
  } else {
    pool.free.emplace(block->second.bytes, block->first);
  }
}

void CachingAllocator::unlist(Blocks::iterator block) {
  Pool& pool = pool_of(block->second);
  if (block->second.use == Use::kUnmapped) {
    pool.unmapped.erase(block->first);
  } else {
    pool.free.erase({block->second.bytes, block->first});
  }
}

void CachingAllocator::change_reserved(int64_t bytes) {
  reserved_ += bytes;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
}

std::vector<AllocatorSegment> CachingAllocator::segments() const {
  std::vector<AllocatorSegment> segments;
  int32_t last = -1;  // segment of the block before
  for (const auto& [address, block] : blocks_) {
    if (block.use == Use::kUnmapped) {
      last = -1;
      continue;
    }
    if (block.segment != last) segments.emplace_back();
    last = block.segment;
    segments.back().push_back({block.bytes, block.use == Use::kTaken});
  }
  return segments;
}

}  // namespace remat

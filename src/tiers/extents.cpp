#include "tiers/extents.h"

#include <algorithm>
#include <iterator>

namespace remat::tiers {

Extent Extents::take_gap(std::map<int64_t, int64_t>::iterator gap, int64_t bytes) {
  const Extent taken{gap->first, std::min(gap->second, bytes)};
  const int64_t rest = gap->second - taken.bytes;
  gaps_.erase(gap);
  if (rest > 0) gaps_.emplace(taken.offset + taken.bytes, rest);
  in_use_ += taken.bytes;
  return taken;
}

std::optional<std::vector<Extent>> Extents::take(int64_t bytes) {
  if (bytes > limit_ - in_use_) return std::nullopt;  // before rounding up, which might overflow
  int64_t wanted = (bytes + unit_ - 1) / unit_ * unit_;
  if (wanted > limit_ - in_use_) return std::nullopt;
  std::vector<Extent> taken;
  if (wanted == 0) return taken;

  // The smallest gap that is long enough.
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second >= wanted && (best == gaps_.end() || gap->second < best->second)) best = gap;
  }
  if (best != gaps_.end()) return std::vector<Extent>{take_gap(best, wanted)};

  // The file grows, by less where its end is a gap.
  const bool ends_in_gap = !gaps_.empty() && gaps_.rbegin()->first + gaps_.rbegin()->second == end_;
  const int64_t begin = ends_in_gap ? gaps_.rbegin()->first : end_;
  if (wanted <= limit_ - begin) {
    if (ends_in_gap) gaps_.erase(begin);
    end_ = begin + wanted;
    in_use_ += wanted;
    return std::vector<Extent>{{begin, wanted}};
  }

  // Several gaps, and the rest at the end. There is room: what is in use and this are below the limit.
  while (wanted > 0 && !gaps_.empty()) {
    taken.push_back(take_gap(gaps_.begin(), wanted));
    wanted -= taken.back().bytes;
  }
  if (wanted > 0) {
    taken.push_back({end_, wanted});
    end_ += wanted;
    in_use_ += wanted;
  }
  return taken;
}

void Extents::give_back(const std::vector<Extent>& extents) {
  for (const auto& extent : extents) {
    in_use_ -= extent.bytes;
    auto gap = gaps_.emplace(extent.offset, extent.bytes).first;
    if (const auto next = std::next(gap); next != gaps_.end() && gap->first + gap->second == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap == gaps_.begin()) continue;
    if (const auto before = std::prev(gap); before->first + before->second == gap->first) {
      before->second += gap->second;
      gaps_.erase(gap);
    }
  }
}

}  // namespace remat::tiers

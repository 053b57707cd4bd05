#include "tape/coverage.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "pytorch/tensor_view.h"

namespace remat {
namespace {

constexpr size_t kMostIntervals = 256;  ///< slices in random order leave holes; each write copies the list

}  // namespace

std::optional<Strip> strip_of(const c10::TensorImpl& impl) {
  const auto item = static_cast<int64_t>(impl.itemsize());
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride in bytes, size
  for (int64_t i = 0; i < impl.dim(); ++i) {
    if (impl.size(i) == 0) return std::nullopt;
    if (impl.size(i) != 1) dims.emplace_back(impl.stride(i) * item, impl.size(i));
  }
  std::sort(dims.begin(), dims.end());
  Strip strip{.begin = impl.storage_offset() * item, .run = item};
  size_t next = 0;
  for (; next < dims.size() && dims[next].first == strip.run; ++next) strip.run *= dims[next].second;
  strip.stride = strip.run;
  if (next == dims.size()) return strip;
  strip.stride = dims[next].first;
  if (strip.stride < strip.run) return std::nullopt;  // elements that share memory
  for (; next < dims.size(); ++next) {
    if (dims[next].first != strip.stride * strip.count) return std::nullopt;
    strip.count *= dims[next].second;
  }
  return strip;
}

void Coverage::add(const Strip& strip) {
  if (strip.run == bytes_) {
    period_ = bytes_;
    filled_ = {{0, bytes_}};
    return;
  }
  const bool one_run = strip.count == 1;
  const int64_t period = one_run ? bytes_ : strip.stride;
  const int64_t begin = strip.begin % period;
  const bool in_each_period = one_run || (strip.begin < period && strip.stride * strip.count == bytes_);
  if (!in_each_period || begin + strip.run > period) return;
  if (filled_.empty()) period_ = period;
  if (period != period_ || filled_.size() >= kMostIntervals) return;
  Interval joined{begin, begin + strip.run};
  const auto apart = [&](const Interval& other) { return other.end < joined.begin || other.begin > joined.end; };
  const auto touching = std::stable_partition(filled_.begin(), filled_.end(), apart);
  for (auto other = touching; other != filled_.end(); ++other) {
    joined = {std::min(joined.begin, other->begin), std::max(joined.end, other->end)};
  }
  filled_.erase(touching, filled_.end());
  const auto after = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  filled_.insert(std::upper_bound(filled_.begin(), filled_.end(), joined, after), joined);
}

bool Coverage::is_complete() const { return contains(0, period_); }

bool Coverage::covers(const c10::TensorImpl& impl) const {
  if (is_complete() || impl.numel() == 0) return true;
  const ByteRange reach = reach_of(impl);
  if (period_ == bytes_) return contains(reach.begin, reach.end);
  const std::optional<Strip> strip = strip_of(impl);
  if (!strip || (strip->count > 1 && strip->stride % period_ != 0)) return false;
  const int64_t begin = strip->begin % period_;
  return contains(begin, begin + strip->run);
}

bool Coverage::contains(int64_t begin, int64_t end) const {
  return std::ranges::any_of(filled_, [&](const Interval& i) { return i.begin <= begin && end <= i.end; });
}

}  // namespace remat

#include "session/pressure_budget.h"

#include <algorithm>
#include <utility>

#include <remat/budget.h>

#include <remat/support/number_text.h>

namespace remat {
namespace {

/// Of what could be had, the part that is left to others: free blocks between tensors, for which the allocator may take
/// an eighth of the limit, and what libraries allocate for themselves.
constexpr int64_t kPartForOthers = 6;
/// A limit that is changed is set lower than it has to be by this part, so that little changes change nothing.
constexpr int64_t kSlack = 32;
constexpr int64_t kPartToRaise = 8;  ///< less than that more is not worth a new plan
constexpr int kLooksToRaise = 3;
constexpr std::chrono::seconds kTimeToRaise{10};
/// Tasks that wait so long, in percent of the time, make the limit lower by an eighth whatever is left. Not again
/// before the kernel's average of ten seconds can show what came of it. Nothing is raised before they wait hardly.
constexpr double kMuchStalled = 10, kHardlyStalled = 1;
constexpr int64_t kPartForStalls = 8;
constexpr std::chrono::seconds kAverage{10};

}  // namespace

std::string PressureBudget::set(int64_t limit, const std::string& why) {
  more_.reset();
  const int64_t before = std::exchange(limit_, std::max<int64_t>(1, limit));
  if (before == INT64_MAX) return why;
  return (limit_ < before ? "lowered from " : "raised from ") + format_bytes(before) + ": " + why;
}

std::string PressureBudget::follow(int64_t own, const memory::MemoryLeft& left, Clock::time_point now) {
  if (left.bytes == INT64_MAX) return {};
  const int64_t all = own + std::min(left.bytes, INT64_MAX - own);
  const int64_t most = all - all / kPartForOthers;
  const int64_t within = most - most / kSlack;
  const std::string why = format_bytes(left.bytes) + " are left in " + left.where;
  if (most < limit_) return set(within, why);
  if (left.stalled_percent >= kMuchStalled) {
    more_.reset();
    if (lowered_for_stalls_ != Clock::time_point::min() && now - lowered_for_stalls_ < kAverage) return {};
    lowered_for_stalls_ = now;
    return set(limit_ - limit_ / kPartForStalls,
               "tasks wait for memory " + support::fixed_text(left.stalled_percent, 0) + " % of the time");
  }
  if (left.stalled_percent >= kHardlyStalled || within < limit_ + limit_ / kPartToRaise) {
    more_.reset();
    return {};
  }
  if (!more_) more_ = {.since = now};
  ++more_->looks;
  more_->least = std::min(more_->least, within);
  if (more_->looks < kLooksToRaise || now - more_->since < kTimeToRaise) return {};
  return set(more_->least, why);
}

}  // namespace remat

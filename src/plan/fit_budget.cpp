// The smallest budget that a training stays within, by trying.
#include <algorithm>
#include <optional>

#include <remat/error.h>
#include <remat/fit.h>

namespace remat {
namespace {

constexpr int kMostCalls = 24;
constexpr int64_t kPrecision = 32;  ///< the search ends where what works and what was refused differ by this part
/// This part is added to what works. Plans follow the times that are measured, and those differ from run to run: a busy
/// machine may need an eighth of the activations more.
constexpr int64_t kSlack = 16;
constexpr int64_t kGrowth = 8;      ///< by this part, by two of it, ..., where refusals name hardly more than they had
constexpr int64_t kFirstStep = 16;  ///< down from what works: by this part, by two of it, ..., then by halves

/// What was found out about budgets, in bytes.
class BudgetSearch {
 public:
  void works(int64_t bytes) {
    in_turn_ = works_ ? in_turn_ + 1 : 1;
    works_ = bytes;
  }
  void refused(int64_t bytes, int64_t needed, int64_t lower_bound) {
    in_turn_ = works_ ? 0 : in_turn_ + 1;
    refused_ = std::max({refused_, bytes, lower_bound - 1});
    needed_ = needed;
  }

  const std::optional<int64_t>& works() const { return works_; }
  bool is_over() const { return works_ && *works_ - refused_ <= *works_ / kPrecision; }
  int64_t next() const {
    if (!works_) return std::max(needed_, refused_ + (in_turn_ - 1) * (refused_ / kGrowth));
    const int64_t half = (*works_ - refused_ + 1) / 2;
    return *works_ - (in_turn_ > 0 ? std::min(half, in_turn_ * (*works_ / kFirstStep)) : half);
  }

 private:
  std::optional<int64_t> works_;  ///< the smallest that does
  int64_t refused_ = 0;           ///< the largest that was, or that a refusal excludes
  int64_t needed_ = 0;            ///< what the last refusal named
  int64_t in_turn_ = 0;           ///< refused since the beginning; worked since the first that did; 0: refused since
};

}  // namespace

int64_t fit_budget(const TrainWithin& train) {
  BudgetSearch search;
  auto budget = Budget::percent(1);
  for (int calls = 1; !search.is_over() && calls <= kMostCalls; ++calls) {
    const int64_t bytes = budget.byte_count();
    try {
      const int64_t peak_bytes = train(budget);
      const bool within = bytes > 0 && peak_bytes <= bytes;
      within ? search.works(bytes) : search.refused(bytes, peak_bytes, bytes);
    } catch (const BudgetError& error) {
      const bool of_device = error.budget_bytes() < bytes;
      if (!search.works() && (of_device || calls == kMostCalls)) throw;
      search.refused(bytes, error.needed_bytes(), error.lower_bound_bytes());
    }
    budget = Budget::bytes(search.next());
  }
  if (!search.works()) {
    throw BudgetError(
        "[fit] the steps took more than each budget, without a refusal; return their peak, and give them the budget",
        budget.byte_count(), 1, std::nullopt);
  }
  return *search.works() + *search.works() / kSlack;
}

}  // namespace remat

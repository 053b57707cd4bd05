// The search for what fits: a few small steps, a prediction, and runs at the answer.
#include <remat/fit.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <remat/budget.h>
#include <remat/error.h>

#include "plan/forecast.h"

namespace remat {
namespace {

/// Where steps are recorded, after the first: at the next size, and at these parts of plain's largest.
constexpr int64_t kNext = 0, kFirstPart = 8, kSecondPart = 4;
constexpr int kRounds = 4;  ///< measurements that may correct one answer

class Search {
 public:
  Search(const FitOptions& options, const FitSteps& steps)
      : options_(options), sizes_(options.sizes), budget_(options.budget_bytes), steps_(steps) {
    result_.what = options.what;
    result_.budget_bytes = budget_;
    result_.most_loss_percent = options.most_loss_percent;
  }

  Fit run() {
    record_small_steps();
    if (forecaster_.empty()) refuse();
    const int64_t plain = predicted_plain(), largest = std::max({plain, recorded_, predicted_largest()});
    result_.predicted_plain = plain < 0 ? 0 : size(plain);
    result_.predicted_largest = largest < 0 ? 0 : size(largest);
    result_.smallest_budget_bytes = forecaster_.at(sizes_.front()).smallest_budget_bytes;
    if (options_.predict_only) {
      plain_ = plain;
      largest_ = largest;
    } else {
      measure_plain(plain);
      measure_largest(std::max({plain_, recorded_, predicted_largest()}));
    }
    if (plain_ >= 0) result_.plain = point(plain_, /*plain=*/true);
    if (largest_ < 0) refuse();
    result_.largest = point(largest_, /*plain=*/largest_ == plain_);
    find_worthwhile();
    find_split();
    result_.same_operators = forecaster_.same_operators();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse() const {
    const int64_t needed = std::max(result_.smallest_budget_bytes, budget_ + 1);
    throw BudgetError("[fit] no " + options_.what + " fits: a step of " + std::to_string(sizes_.front()) +
                          " needs about " + format_exact_bytes(needed) + "; the budget is " +
                          format_exact_bytes(budget_) + "; give more, or smaller sizes",
                      budget_, budget_, std::nullopt, needed);
  }

  // Places in `sizes_` stand for sizes; -1 for none.

  int64_t size(int64_t place) const { return sizes_[static_cast<size_t>(place)]; }
  int64_t last() const { return static_cast<int64_t>(sizes_.size()) - 1; }

  FitTrial run_steps(int64_t place, FitMode mode) {
    FitTrial trial = steps_(size(place), mode);
    if (mode == FitMode::kPlain) trial.fits = trial.peak_bytes <= budget_;
    if (mode == FitMode::kRecord && trial.fits && !trial.graph) {
      throw Error("[fit] the recorded step of " + options_.what + " " + std::to_string(size(place)) +
                  " fitted and gave no graph; put the session's into FitTrial::graph");
    }
    if (trial.graph && trial.fits) {
      forecaster_.add(size(place), std::move(*trial.graph));
      recorded_ = std::max(recorded_, place);
    }
    result_.runs.push_back({size(place), mode, trial.fits});
    return trial;
  }

  /// The largest place where `holds`, which small sizes do and large ones do not.
  template <class Holds>
  int64_t largest_where(Holds holds, int64_t first = 0) const {
    const auto begin = sizes_.begin() + first;
    return std::partition_point(begin, sizes_.end(), holds) - sizes_.begin() - 1;
  }
  int64_t predicted_plain() {
    return largest_where([&](int64_t size) { return forecaster_.at(size).plain_peak_bytes <= budget_; });
  }
  int64_t predicted_largest() {
    return largest_where([&](int64_t size) { return forecaster_.at(size).smallest_budget_bytes <= budget_; });
  }

  /// A size of 1 is often a special case of kernels and views. A fourth size shows where kernels allocate more.
  void record_small_steps() {
    int64_t place = size(0) == 1 && last() > 0 ? 1 : 0;
    FitTrial trial = run_steps(place, FitMode::kRecord);
    if (!trial.fits && place > 0) trial = run_steps(place = 0, FitMode::kRecord);
    if (!trial.fits) result_.smallest_budget_bytes = trial.peak_bytes;
    for (const int64_t part : {kNext, kFirstPart, kSecondPart}) {
      if (!trial.fits || place == last()) return;
      const int64_t plain = part == kNext ? -1 : predicted_plain();
      const int64_t wanted = plain < 0 ? 0 : size(plain) / part;
      place = std::max(place + 1, largest_where([&](int64_t size) { return size <= wanted; }));
      if (forecaster_.at(size(place)).smallest_budget_bytes > budget_) return;  // what fits lies before it
      trial = run_steps(place, FitMode::kRecord);
    }
  }

  /// A recorded step, which keeps to the budget, shows whether plain does.
  void measure_plain(int64_t place) {
    int64_t too_large = last() + 1;
    for (int round = 0; place > plain_ && (round < kRounds || plain_ < 0); ++round) {
      const bool recorded = run_steps(place, FitMode::kRecord).fits;
      const bool fits =
          recorded && forecaster_.at(size(place)).plain_peak_bytes <= budget_ && measure(place, FitMode::kPlain);
      (fits ? plain_ : too_large) = place;
      place = std::min(predicted_plain(), too_large - 1);
    }
  }

  /// Runs it, and notes what it took.
  bool measure(int64_t place, FitMode mode) {
    const FitTrial trial = run_steps(place, mode);
    if (!trial.fits) return false;
    measured_[{place, mode == FitMode::kPlain}] = {size(place), trial.peak_bytes, trial.seconds, true};
    return true;
  }

  /// What fits without remat fits with it.
  void measure_largest(int64_t place) {
    largest_ = plain_;
    int64_t too_large = last() + 1, down = 1;
    for (int round = 0; place > largest_ && (round < kRounds || largest_ < 0); ++round) {
      if (measure(place, FitMode::kRemat)) {
        largest_ = place;
        place = std::min(predicted_largest(), too_large - 1);
      } else {
        too_large = place;
        place = std::max({largest_, place - down, std::min<int64_t>(0, place - 1)});
        down *= 2;
      }
    }
  }

  FitPoint point(int64_t place, bool plain) {
    const auto found = measured_.find({place, plain});
    if (found != measured_.end()) return found->second;
    const Forecast& told = forecaster_.at(size(place));
    const double seconds = plain ? told.plain_seconds : forecaster_.seconds_within(size(place), budget_).value_or(0);
    return {size(place), std::min(told.plain_peak_bytes, budget_), seconds * calibration(plain), false};
  }

  /// Measured time by predicted, of plain's largest size: recorded steps are small, and first ones. For a step under
  /// remat, the mean of that and of remat's largest.
  double calibration(bool plain) {
    const double of_plain = measured_by_predicted(plain_, true);
    if (plain || largest_ == plain_) return of_plain;
    return (of_plain + measured_by_predicted(largest_, false)) / 2;
  }
  double measured_by_predicted(int64_t place, bool plain) {
    const auto found = measured_.find({place, plain});
    if (found == measured_.end()) return 1;
    const double told = plain ? forecaster_.at(size(place)).plain_seconds
                              : forecaster_.seconds_within(size(place), budget_).value_or(0);
    return told > 0 ? found->second.seconds / told : 1;
  }

  bool is_worth_it(const FitPoint& point) const {
    return point.per_second() > 0 && result_.loss_percent(point) <= options_.most_loss_percent;
  }

  void find_worthwhile() {
    if (plain_ < 0) return;
    result_.worthwhile = result_.plain;
    if (largest_ == plain_) return;
    if (is_worth_it(result_.largest)) {
      result_.worthwhile = result_.largest;
      return;
    }
    int64_t good = plain_, bad = largest_;
    int64_t place =
        largest_where([&](int64_t each) { return each < size(largest_) && is_worth_it(point_of(each)); }, good);
    for (int round = 0; round < kRounds && place > good && place < bad; ++round) {
      const bool fits = options_.predict_only || measure(place, FitMode::kRemat);
      const auto here = fits ? std::optional(point(place, false)) : std::nullopt;
      if (here && is_worth_it(*here)) {
        good = place;
        result_.worthwhile = here;
      } else {
        bad = place;
      }
      if (options_.predict_only || bad > place) return;
      place = good + (bad - good) / 2;
    }
  }

  FitPoint point_of(int64_t each) {
    const int64_t place = std::ranges::lower_bound(sizes_, each) - sizes_.begin();
    return point(place, place <= plain_);
  }

  /// The fastest of all divisions of the effective size into sizes that fit.
  void find_split() {
    if (options_.effective == 0) return;
    std::optional<FitSplit> best;
    for (int64_t place = largest_; place >= 0; --place) {
      if (options_.effective % size(place) != 0) continue;
      FitSplit split{
          .step = point(place, place <= plain_), .steps = options_.effective / size(place), .plain = place <= plain_};
      if (split.step.seconds <= 0 || (best && best->seconds() <= split.seconds())) continue;
      best = std::move(split);
    }
    if (!best) return;
    const int64_t place = std::ranges::lower_bound(sizes_, best->step.size) - sizes_.begin();
    if (!options_.predict_only && !best->step.measured &&
        measure(place, best->plain ? FitMode::kPlain : FitMode::kRemat)) {
      best->step = point(place, best->plain);
    }
    if (!best->plain) best->plan = forecaster_.plan(best->step.size, budget_);
    if (best->step.measured || options_.predict_only) result_.split = std::move(best);
  }

  const FitOptions& options_;
  const std::vector<int64_t>& sizes_;
  const int64_t budget_;
  const FitSteps& steps_;
  Forecaster forecaster_;
  std::map<std::pair<int64_t, bool>, FitPoint> measured_;  ///< by place, and whether plain
  int64_t recorded_ = -1;                                  ///< the largest of which one step has fitted
  int64_t plain_ = -1, largest_ = -1;
  Fit result_;
};

}  // namespace

double Fit::times_plain(const FitPoint& point) const {
  return plain ? static_cast<double>(point.size) / static_cast<double>(plain->size) : 0;
}

double Fit::loss_percent(const FitPoint& point) const {
  const double usual = plain ? plain->per_second() : 0;
  return usual > 0 ? 100 * (1 - point.per_second() / usual) : 0;
}

void FitOptions::check() const {
  const auto refuse = [](const std::string& why) { throw Error("[fit] " + why); };
  if (sizes.empty()) refuse("there are no sizes; give those to choose from");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) refuse("size " + std::to_string(sizes[i]) + " has no meaning; give 1 or more");
    if (i > 0 && sizes[i] <= sizes[i - 1]) {
      refuse("size " + std::to_string(sizes[i]) + " follows " + std::to_string(sizes[i - 1]) +
             "; give sizes in ascending order, each once");
    }
  }
  if (budget_bytes < 1) {
    refuse("a budget of " + std::to_string(budget_bytes) + " bytes has no meaning; give a positive number");
  }
  if (!(most_loss_percent >= 0 && most_loss_percent <= 100)) {
    refuse("a loss of " + std::to_string(most_loss_percent) + " % has no meaning; give 0 to 100");
  }
  if (effective < 0) {
    refuse("an effective " + what + " of " + std::to_string(effective) + " has no meaning; give 1 or more");
  }
}

Fit fit(const FitOptions& options, const FitSteps& steps) {
  options.check();
  if (!steps) throw Error("[fit] there is no function that runs steps; give one");
  return Search(options, steps).run();
}

std::vector<int64_t> fit_sizes(int64_t least, int64_t most, int64_t step) {
  constexpr int64_t kInADoubling = 8, kTooLarge = int64_t{1} << 62;
  if (least < 1 || most < least || most >= kTooLarge || step < 1) {
    throw Error("[fit] there are no sizes from " + std::to_string(least) + " to " + std::to_string(most) + " by " +
                std::to_string(step) + "; give 1 <= least <= most and step >= 1");
  }
  // A multiple of the step that is larger than `most` may be so by more than there are numbers for.
  if (step > most) return {};
  std::vector<int64_t> sizes;
  for (int64_t n = (least + step - 1) / step; n * step <= most;) {
    sizes.push_back(n * step);
    int64_t next = 1;
    while (next * 2 * kInADoubling <= n) next *= 2;
    n = n / next * next + next;
  }
  return sizes;
}

}  // namespace remat

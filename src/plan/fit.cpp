// The search for what fits: a few small steps, a prediction, and runs at the answer.
#include <remat/fit.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/rounds.h>

#include <remat/support/number_text.h>
#include "plan/forecast.h"

namespace remat {
namespace {

/// Where steps are recorded, after the first: at the next size, and at these parts of plain's largest.
constexpr int64_t kNext = 0, kFirstPart = 8, kSecondPart = 4;
constexpr int kRounds = 4;  ///< measurements that may correct one answer
/// Rounds in which times are compared, and as many as there may be while they do not tell; of short steps and long.
constexpr size_t kLeastRounds = 4, kMostRounds = 6, kLeastOfLong = 2, kMostOfLong = 4;

constexpr double kTimeTolerance = 1.1;  ///< so many times as long as a larger step, a step may take

enum class Worth : uint8_t { kYes, kNo, kUnclear, kDoesNotFit };

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
    if (largest_ < 0) refuse();
    find_worthwhile();
    find_split();
    if (plain_ >= 0) result_.plain = point(plain_, /*plain=*/true);
    result_.largest = point(largest_, /*plain=*/largest_ == plain_);
    result_.same_operators = forecaster_.same_operators();
    return std::move(result_);
  }

 private:
  struct Measured {
    int64_t peak_bytes = 0;
    RoundTimes times;
  };

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
    const bool again = measured_.contains({place, false});  // its graph is known, and what follows from it
    if (trial.graph && trial.fits && !again) {
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
    Measured& measured = measured_[{place, mode == FitMode::kPlain}];
    measured.peak_bytes = std::max(measured.peak_bytes, trial.peak_bytes);
    measured.times.add_round(trial.step_seconds.empty() ? std::vector<double>{trial.seconds} : trial.step_seconds);
    return true;
  }

  /// What fits without remat fits with it.
  void measure_largest(int64_t place) {
    largest_ = plain_;
    int64_t down = 1;
    for (int round = 0; place > largest_ && (round < kRounds || largest_ < 0); ++round) {
      if (measure(place, FitMode::kRemat)) {
        largest_ = place;
        place = std::min(predicted_largest(), too_large_ - 1);
      } else {
        too_large_ = place;
        place = std::max({largest_, place - down, std::min<int64_t>(0, place - 1)});
        down *= 2;
      }
    }
  }

  FitPoint point(int64_t place, bool plain) {
    const auto found = measured_.find({place, plain});
    if (found != measured_.end()) return measured_point(place, plain, found->second);
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
    return told > 0 ? found->second.times.least() / told : 1;
  }

  FitPoint measured_point(int64_t place, bool plain, const Measured& measured) const {
    FitPoint point{size(place), measured.peak_bytes, measured.times.least(), true, measured.times.usual()};
    if (plain || place <= plain_ || plain_ < 0) return point;
    const TimesRatio ratio = ratio_of(measured.times, measured_.at({plain_, true}).times);
    point.least_loss_percent = loss_percent(place, ratio.least);
    point.most_loss_percent = loss_percent(place, ratio.most);
    return point;
  }

  /// How much less than plain's largest is handled in a second by a step that takes so many times as long.
  double loss_percent(int64_t place, double times_as_long) const {
    return 100 * (1 - static_cast<double>(size(place)) / static_cast<double>(size(plain_)) / times_as_long);
  }

  /// By what is measured, or else predicted.
  Worth worth_of(int64_t place) {
    const FitPoint here = point(place, /*plain=*/false), usual = point(plain_, /*plain=*/true);
    if (here.seconds <= 0 || usual.seconds <= 0) return Worth::kNo;
    if (!here.measured) {
      return loss_percent(place, here.seconds / usual.seconds) <= options_.most_loss_percent ? Worth::kYes : Worth::kNo;
    }
    if (here.most_loss_percent <= options_.most_loss_percent) return Worth::kYes;
    return here.least_loss_percent > options_.most_loss_percent ? Worth::kNo : Worth::kUnclear;
  }

  /// Runs it in turn with plain's largest, until their times tell whether it is worth it, or vary too much.
  Worth compare(int64_t place) {
    if (options_.predict_only) return worth_of(place);
    if (!measured_.contains({place, false}) && !measure(place, FitMode::kRemat)) return Worth::kDoesNotFit;
    const RoundTimes &plain = measured_.at({plain_, true}).times, &own = measured_.at({place, false}).times;
    for (;;) {
      const Worth worth = worth_of(place);
      if (plain.least() <= 0 || own.least() <= 0) return worth;  // whoever runs steps measures no times
      // Both: a short step may have been kept from running.
      const bool is_long = std::min(plain.least(), own.least()) >= kLongStep, told = worth != Worth::kUnclear;
      // More rounds where it is the answer that is in doubt.
      const size_t needed = told || place != largest_ ? least_rounds(is_long) : most_rounds(is_long);
      if (std::min(plain.rounds(), own.rounds()) >= needed) return worth;
      // Short steps of plain's are run beside each size anew: the machine may be busier by now.
      if (plain.rounds() < needed || !is_long) measure(plain_, FitMode::kPlain);
      if (own.rounds() < needed && !measure(place, FitMode::kRemat)) {
        measured_.erase({place, false});
        return Worth::kDoesNotFit;
      }
    }
  }
  static size_t least_rounds(bool is_long) { return is_long ? kLeastOfLong : kLeastRounds; }
  static size_t most_rounds(bool is_long) { return is_long ? kMostOfLong : kMostRounds; }

  /// All that was tried is judged at the end, when most is known of how much times vary.
  void find_worthwhile() {
    if (plain_ < 0) return;
    Worth worth = Worth::kNo;
    while (largest_ > plain_ && (worth = compare(largest_)) == Worth::kDoesNotFit) {
      too_large_ = largest_;
      measure_largest(largest_ - 1);
    }
    int64_t good = plain_;
    if (largest_ > plain_) {
      std::vector<int64_t> tried = {largest_};
      if (worth != Worth::kYes) try_between(tried);
      bool unclear = false;
      for (const int64_t place : tried) {
        worth = worth_of(place);
        if (worth == Worth::kYes) good = std::max(good, place);
        unclear = unclear || worth == Worth::kUnclear;
      }
      const bool beyond = worth_of(largest_) == Worth::kUnclear;
      result_.verdict = good == largest_ ? FitVerdict::kWorthIt
                        : beyond         ? FitVerdict::kCannotTell
                        : good > plain_  ? FitVerdict::kUpToASize
                        : unclear        ? FitVerdict::kCannotTell
                                         : FitVerdict::kNotWorthIt;
    }
    result_.worthwhile = point(good, /*plain=*/good == plain_);
  }

  /// Sizes between plain's and remat's largest, in search of the largest that is worth it; until times do not tell.
  void try_between(std::vector<int64_t>& tried) {
    const auto seems_so = [&](int64_t each) {
      const int64_t place = place_of(each);
      return place < largest_ && (place <= plain_ || worth_of(place) == Worth::kYes);
    };
    int64_t good = plain_, bad = largest_;
    const int64_t predicted = largest_where(seems_so, good);
    if (options_.predict_only) {
      if (predicted > good) tried.push_back(predicted);
      return;
    }
    const auto try_at = [&](int64_t place) {
      const Worth worth = compare(place);
      if (worth != Worth::kDoesNotFit) tried.push_back(place);
      (worth == Worth::kYes ? good : bad) = place;
      return worth != Worth::kUnclear;
    };
    for (int round = 0; round < kRounds && bad - good > 1; ++round) {
      if (!try_at(round == 0 && predicted > good ? predicted : good + (bad - good) / 2)) return;
    }
    // Where none is worth it, this is not left to a search that times may have led astray.
    if (good == plain_ && bad > good + 1) try_at(good + 1);
  }

  /// The fastest of all divisions of the effective size into sizes that fit. What seems to be the fastest is measured,
  /// until it is so by what was measured.
  void find_split() {
    if (options_.effective == 0) return;
    std::optional<FitSplit> best;
    std::set<int64_t> refused;
    for (int round = 0;; ++round) {
      best = fastest_split(refused, /*predicted=*/round < kRounds);
      if (!best || best->step.measured || options_.predict_only) break;
      const int64_t place = place_of(best->step.size);
      if (!time_split(place, best->plain)) refused.insert(place);
    }
    if (!best) return;
    if (!options_.predict_only) best->clear = is_clear(*best);
    if (!best->plain) best->plan = forecaster_.plan(best->step.size, budget_);
    result_.split = std::move(best);
  }

  /// By what was measured, and where nothing was by what is predicted, if that is wanted.
  std::optional<FitSplit> fastest_split(const std::set<int64_t>& refused, bool predicted) {
    std::optional<FitSplit> best;
    for (int64_t place = largest_; place >= 0; --place) {
      if (options_.effective % size(place) != 0 || refused.contains(place)) continue;
      const bool plain = place <= plain_;
      FitSplit split{.step = point(place, plain), .steps = options_.effective / size(place), .plain = plain};
      if (!split.step.measured) {
        if (!predicted) continue;
        split.step.seconds = std::min(split.step.seconds, most_seconds(place, plain));
      }
      if (split.step.seconds <= 0 || (best && best->seconds() <= split.seconds())) continue;
      best = std::move(split);
    }
    return best;
  }

  /// A step takes no longer than a larger one that was measured.
  double most_seconds(int64_t place, bool plain) const {
    double most = std::numeric_limits<double>::infinity();
    for (const auto& [key, larger] : measured_) {
      if (key.first > place && key.second == plain) most = std::min(most, larger.times.least());
    }
    return most;
  }
  bool contradicts(int64_t place, bool plain) const {
    return measured_.at({place, plain}).times.least() > kTimeTolerance * most_seconds(place, plain);
  }

  /// In rounds as what is compared with plain; in more where a larger step took less. False where it does not fit.
  bool time_split(int64_t place, bool plain) {
    const RoundTimes& times = measured_[{place, plain}].times;
    const auto needed = [&] {
      const bool is_long = std::min(times.least(), most_seconds(place, plain)) >= kLongStep;
      return contradicts(place, plain) ? most_rounds(is_long) : least_rounds(is_long);
    };
    do {
      if (measure(place, plain ? FitMode::kPlain : FitMode::kRemat)) continue;
      measured_.erase({place, plain});
      return false;
    } while (times.rounds() > 0 && times.rounds() < needed());
    return true;
  }

  /// Whether the split is the fastest of those that were measured, as far as times vary.
  bool is_clear(const FitSplit& split) {
    const int64_t own = place_of(split.step.size);
    if (contradicts(own, split.plain)) return false;
    for (const auto& [key, other] : measured_) {
      const auto [place, plain] = key;
      if (place == own || plain != (place <= plain_) || options_.effective % size(place) != 0) continue;
      const double steps = static_cast<double>(split.steps * size(place)) / static_cast<double>(options_.effective);
      if (steps * ratio_of(measured_.at({own, split.plain}).times, other.times).most > 1) return false;
    }
    return true;
  }

  int64_t place_of(int64_t each) const { return std::ranges::lower_bound(sizes_, each) - sizes_.begin(); }

  const FitOptions& options_;
  const std::vector<int64_t>& sizes_;
  const int64_t budget_;
  const FitSteps& steps_;
  Forecaster forecaster_;
  std::map<std::pair<int64_t, bool>, Measured> measured_;  ///< by place, and whether plain
  int64_t recorded_ = -1;                                  ///< the largest of which one step has fitted
  int64_t plain_ = -1, largest_ = -1;
  int64_t too_large_ = static_cast<int64_t>(options_.sizes.size());  ///< the smallest that was refused under remat
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

Fit fit(const FitOptions& options, const FitSteps& steps) {
  options.check();
  if (!steps) throw Error("[fit] there is no function that runs steps; give one");
  return Search(options, steps).run();
}

}  // namespace remat

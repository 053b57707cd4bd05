// remat/fit.h -- the largest size of a step that fits a budget, plainly and with remat: a batch, a length, a depth; and
// the smallest budget that fits a training.
//
// Steps of a few small sizes are recorded; their graphs tell what any other size takes. What that predicts is then
// measured, and lowered until it holds. Every run keeps to the budget, so that nothing is found by running out of
// memory. No torch, no clock, no files here: whoever asks runs the steps, on the thread that calls fit().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <remat/budget.h>
#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

/// What running steps at one size gave. Bytes are tensor bytes, what is alive between steps included.
struct FitTrial {
  bool fits = false;                ///< all of them stayed within the budget
  int64_t peak_bytes = 0;           ///< measured; 0 where none ended
  double seconds = 0;               ///< of the last step, without planning
  std::optional<Graph> graph = {};  ///< recorded; needed of kRecord where it fits, nothing in a plain run
  /// Of steps one after another, without planning: several of a short one, since what else the machine does makes some
  /// of them longer. Empty: `seconds` is all that is known.
  std::vector<double> step_seconds = {};
};

enum class FitMode : uint8_t {
  kRecord,  ///< one step of a session with the budget: for its graph
  kPlain,   ///< steps without remat; fit() asks for them only where a recorded one of this size shows that they fit
  kRemat,   ///< several steps of a session with the budget: the first has no plan, those after it are timed
};

/// Runs steps of a size. What it throws ends the search, but for what FitTrial has a place for. Sizes whose times are
/// compared are run several times, in turn.
using FitSteps = std::function<FitTrial(int64_t size, FitMode mode)>;

/// What fit() looks for, and under which budget.
struct FitOptions {
  std::vector<int64_t> sizes;  ///< those to choose from: positive, ascending
  int64_t budget_bytes = 0;    ///< everything counted, parameters included
  /// A larger size is worth its time where a step handles at most this much less of it in a second than plain does at
  /// its largest, in percent.
  double most_loss_percent = 15;
  /// The size that is wanted, of several steps together whose gradients add up; 0: none.
  int64_t effective = 0;
  /// Nothing is measured but the small steps; the answer is not vouched for.
  bool predict_only = false;
  std::string what = "batch";  ///< what messages call the size

  /// Throws Error if they make no sense.
  void check() const;
};

/// What steps of one size take.
struct FitPoint {
  int64_t size = 0;        ///< of the batch, or what else was asked for
  int64_t peak_bytes = 0;  ///< the most alive in a step, everything counted
  double seconds = 0;      ///< of a step: the least of all that were timed
  bool measured = false;   ///< false where nothing but a prediction was asked for
  /// The least in a usual round of steps: far more than `seconds` where the machine does other things beside.
  double usual_seconds = 0;
  /// How much less of the size than plain's largest is handled in a second, in percent: the least that measured times
  /// allow, negative where more is handled. 0 where it was not measured, and for plain's sizes.
  double least_loss_percent = 0;
  double most_loss_percent = 0;  ///< the most that they allow

  /// Of the size, handled in a second.
  double per_second() const { return seconds > 0 ? static_cast<double>(size) / seconds : 0; }
};

/// How to train with an effective size: so many steps of a smaller one.
struct FitSplit {
  FitPoint step;                  ///< one of them
  int64_t steps = 1;              ///< accumulated
  bool plain = false;             ///< they fit without remat
  std::optional<Plan> plan = {};  ///< for step.size; nothing where plain, and where none is made ahead
  bool clear = true;              ///< false where times vary too much to tell that no other measured split is faster

  /// Of all steps together.
  double seconds() const { return static_cast<double>(steps) * step.seconds; }
};

/// Whether sizes larger than plain's are worth their time.
enum class FitVerdict : uint8_t {
  kNone,        ///< nothing to compare: plain fits at none or as large a size
  kWorthIt,     ///< Fit::largest is
  kUpToASize,   ///< Fit::worthwhile is, larger ones are not
  kNotWorthIt,  ///< none is
  kCannotTell,  ///< times vary too much; Fit::worthwhile is the largest that surely is
};

/// One run on the way to the answer. Those that are timed are run again.
struct FitRun {
  int64_t size = 0;                 ///< that was run
  FitMode mode = FitMode::kRecord;  ///< in which way
  bool fits = false;                ///< it stayed within the budget
};

/// What fit() found.
struct Fit {
  std::string what;                    ///< what the sizes are of: "batch"
  int64_t budget_bytes = 0;            ///< that everything alive had to fit in
  double most_loss_percent = 0;        ///< what a larger size might cost to be worth it: FitOptions::most_loss_percent
  std::optional<FitPoint> plain;       ///< the largest that fits without remat; nothing where none does
  FitPoint largest;                    ///< the largest that fits with it
  std::optional<FitPoint> worthwhile;  ///< the largest surely at no more than most_loss_percent; nothing without plain
  FitVerdict verdict = FitVerdict::kNone;  ///< on the larger sizes
  std::optional<FitSplit> split;           ///< the fastest for the effective size; nothing where no split of it fits
  int64_t predicted_plain = 0;             ///< what the small steps said, before anything was measured; 0: none fits
  int64_t predicted_largest = 0;           ///< the same under remat
  int64_t smallest_budget_bytes = 0;       ///< for the smallest size, as predicted
  bool same_operators = true;  ///< the sizes ran the same operators: graphs were predicted, not only their peaks
  std::vector<FitRun> runs;    ///< in their order

  /// How many times plain's largest size another one is; 0 where plain fits at none.
  double times_plain(const FitPoint& point) const;
  /// How much less `point` handles in a second than plain at its largest, in percent; negative where more.
  double loss_percent(const FitPoint& point) const;
};

/// Finds what fits. Throws BudgetError where not even the smallest size does, Error for options that make no sense.
Fit fit(const FitOptions& options, const FitSteps& steps);

/// The first steps of a training within a budget: a session with it and all else made anew, two steps or more with the
/// optimizer's, since its state comes to stay in its first. Returns the most bytes alive at once, over all steps.
using TrainWithin = std::function<int64_t(const Budget& budget)>;

/// The smallest budget, in bytes, that `train` stays within, by trying: first 1 %, of which a first step takes what it
/// needs and no more; then what each BudgetError names, until one suffices; then less, until what is refused is a 32nd
/// below what works. To that a 16th is added, since times, and with them plans, differ from run to run. Takes about six
/// calls, as much memory as the answer, and more calls where steps differ. Throws the last BudgetError where the device
/// has less than the steps need, or nothing has sufficed in 24 calls; and what else `train` throws.
int64_t fit_budget(const TrainWithin& train);

/// Multiples of `step` from `least` to `most`: every one up to 16 times `step`, then 8 in each doubling, so that two
/// neighbours differ by no more than an eighth. Throws Error unless 1 <= least <= most < 2^62 and step >= 1.
std::vector<int64_t> fit_sizes(int64_t least, int64_t most, int64_t step = 1);

/// For people: the sizes, their times, and whether the larger is worth it.
std::string to_text(const Fit& fit);
/// One JSON object with the names of the fields.
std::string to_json(const Fit& fit);

}  // namespace remat

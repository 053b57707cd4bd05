// cli/sweep_cells.h -- the plans of a sweep, and what they cost beside plain. Needs no torch.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remat/rounds.h>

#include "cli/planning.h"

namespace remat::cli {

/// What real steps under a plan took, and plain ones in turn with them.
struct Measurement {
  int64_t rounds = 0;
  int64_t peak_bytes = 0, plain_peak_bytes = 0;  ///< the largest, baseline included
  double seconds = 0, plain_seconds = 0;         ///< the least of all rounds
  TimesRatio times_plain = {};                   ///< the first of these by the other, and what it may be
  std::string not_followed = {};                 ///< why the steps did not follow the plan; empty where they did

  /// Of plain's time; nothing where times vary too much to tell.
  std::optional<double> extra_percent() const;
  /// What it may be, as far as times vary.
  double least_extra_percent() const { return 100 * (times_plain.least - 1); }
  double most_extra_percent() const { return 100 * (times_plain.most - 1); }
};

/// One plan, or why there is none.
struct SweepCell {
  std::string name;          ///< the planner, or what else decided: kCheckpoints and the other two below
  std::string budget;        ///< as typed; empty: the plan was asked for without one
  int64_t budget_bytes = 0;  ///< baseline included
  Attempt attempt;
  std::optional<Measurement> measured;
  std::string refused = {};  ///< why the steps could not be measured: one that fails does not end the sweep
};

/// Fills in what `measure` gives for the cell's plan, or why it gives nothing; returns what it threw. Others may take
/// less, or go another way.
std::exception_ptr measure_cell(SweepCell& cell, const std::function<Measurement(const Plan&)>& measure);

// What decides where no budget is given.
inline constexpr const char* kStoreAll = "store all";
inline constexpr const char* kRecomputeAll = "recompute all";
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kSamePeak = "auto";  ///< within the peak of the checkpoints

/// Of one planner, from the largest budget down: a plan for a smaller budget takes the place of a slower one for a
/// larger, so that less memory never looks faster.
void carry_forward(std::vector<SweepCell>& cells);

/// A planner's plans, from the largest budget down, carried forward.
std::vector<SweepCell> plan_budgets(const Graph& graph, const std::string& planner,
                                    const std::vector<std::string>& budgets);

struct CheckpointRow {
  int64_t asked = 0;                ///< so many, and there may be places for fewer
  std::vector<int32_t> places;      ///< the operators that the checkpoints stand before
  int64_t longest_segment = 0;      ///< in operators
  SweepCell cell;                   ///< kCheckpoints
  std::optional<SweepCell> better;  ///< kSamePeak
};

/// A row for each number, ascending; powers of two for an empty list. Of numbers that there are equally many places
/// for, the first.
std::vector<CheckpointRow> plan_checkpoints(const Graph& graph, std::vector<int64_t> numbers);

/// One depth of a model.
struct DepthRow {
  int64_t depth = 0;
  PlainStep plain;
  int64_t operators = 0;
  int64_t checkpoints = 0;       ///< of the strategy kCheckpoints: as many as give the lowest peak
  std::vector<SweepCell> cells;  ///< kStoreAll, kRecomputeAll, kCheckpoints, kSamePeak
};
DepthRow plan_depth(const Graph& graph, int64_t depth);

/// The exponent p where a strategy's activation peak grows as depth^p: the slope of the regression line of logarithms.
/// Nothing for less than two depths.
std::optional<double> growth(const std::vector<std::pair<int64_t, int64_t>>& bytes_by_depth);

/// What one example leaves in memory for the backward pass: values that a plan may recompute or pack, in the order in
/// which they are made.
struct SavedValue {
  std::string operator_name;
  int64_t bytes = 0;
};
std::vector<SavedValue> saved_values(const Graph& graph);

/// What has been published of a model, to put beside.
struct PublishedPoint {
  double memory_percent = 0;  ///< of plain's
  double extra_percent = 0;   ///< of plain's time
  std::string what, source;
};
std::optional<PublishedPoint> published_point(const std::string& model);

}  // namespace remat::cli

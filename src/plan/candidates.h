// src/plan/candidates.h -- the plans that a planner proposes, and the fastest of those that the simulator puts within
// the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

/// By value: seconds to recompute it where all saved values are kept. Inputs that are not saved are recomputed once for
/// each read, so the sum may be too high where a graph branches; it is at most that of all operators.
std::vector<double> recompute_seconds(const Graph& graph);

/// By value: whether packing and unpacking it takes less time than recompute_seconds().
std::vector<bool> cheaper_packed(const Graph& graph);

/// By value: whether it is saved and no scope's policy drops it, so that a plan may keep it for the backward pass.
std::vector<bool> saved_values(const Graph& graph);

/// The work of a simulation: its events and replayed operators. Counted, not timed, so that plans do not depend on the
/// machine.
inline int64_t work_of(const Graph& graph, const Simulation& run) {
  return static_cast<int64_t>(graph.events.size()) + 4 * run.replays;
}

/// Actions that keep the values in `kept` and drop all other droppable ones.
Actions only_kept(const Graph& graph, const std::vector<bool>& kept);

/// Simulates plans and keeps their Pareto front. It begins with the plan that keeps everything.
class Candidates {
 public:
  /// `budget`: in bytes, baseline included.
  Candidates(const Graph& graph, int64_t budget, PlannerOptions options);

  /// Simulates `actions` and, where plans may pack, two variants: of the values that are cheaper_packed(), the dropped
  /// ones are packed, then the kept ones too. Returns whether one of the three fits the budget.
  bool offer(const Actions& actions);
  /// The simulations so far took so much work_of() that the planner should stop.
  bool exhausted() const { return work_ > kMostWork; }
  /// The peak of the plan that keeps everything, in bytes.
  int64_t plain_peak() const { return plain_peak_; }
  /// The fastest plan that fits, or the one with the lowest peak where none does.
  Actions best() const;
  /// Seconds of the fastest plan that fits; infinite where none does.
  double best_seconds() const;

 private:
  static constexpr int64_t kMostWork = 100'000'000;

  int64_t judge(const Actions& actions);  ///< returns the peak
  Actions packed(Actions actions, bool kept_too) const;

  const Graph& graph_;
  const int64_t budget_;
  Simulator simulator_;
  std::vector<bool> packable_;  ///< empty: plans may not pack
  ParetoFront front_;
  int64_t work_ = 0;
  int64_t plain_peak_ = 0;
};

}  // namespace remat::planners

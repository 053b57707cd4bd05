// src/plan/candidates.h -- the fastest of all actions that a planner came up with and that the simulator puts within
// the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

/// Seconds to make each value again from what a plan may keep, by value. Values that are not saved are made again with
/// it, as often as they are read: where a graph branches the sum may be too high. At most those of all operators.
std::vector<double> remaking_seconds(const Graph& graph);

/// Values that take less time to pack and unpack than a replay does at the least, by value.
std::vector<bool> cheaper_packed(const Graph& graph);

/// Values that are saved and not dropped by a policy: they may be there in backward.
std::vector<bool> saved_values(const Graph& graph);

/// What a simulation costs, about: events, and operators that it replays. Counted, not timed, so that plans do not
/// depend on the machine.
inline int64_t work_of(const Graph& graph, const Simulation& run) {
  return static_cast<int64_t>(graph.events.size()) + 4 * run.replays;
}

/// Keeps the values marked, drops all others that can be dropped.
Actions only_kept(const Graph& graph, const std::vector<bool>& kept);

/// Collects actions. Knows those that keep everything from the start.
class Candidates {
 public:
  /// `budget`: in bytes, baseline included.
  Candidates(const Graph& graph, int64_t budget, PlannerOptions options);

  /// Has the simulator judge `actions` and, where plans may pack, also with all that is cheaper_packed() packed: of
  /// what is dropped, and of what is kept as well. True if one of them fits.
  bool offer(const Actions& actions);
  /// Simulations take time in proportion to events and replays. Planners stop when so many have been seen that it would
  /// be felt: work_of() of all.
  bool exhausted() const { return work_ > kMostWork; }
  /// Of the actions that keep everything.
  int64_t plain_peak() const { return plain_peak_; }
  /// The fastest that fit, or those with the lowest peak.
  Actions best() const;
  /// Seconds of the fastest that fit; infinite if nothing does.
  double best_seconds() const;

 private:
  static constexpr int64_t kMostWork = 100'000'000;

  int64_t judge(const Actions& actions);  ///< its peak
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

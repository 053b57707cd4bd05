// tests/plan/brute_force.h -- every choice that there is for a small graph, tried out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include <remat/planner.h>

#include "plan/simulate.h"

namespace remat::test {

inline int64_t plain_peak(const Graph& graph) {
  return predict(graph, std::vector<Action>(graph.values.size(), Action::kKeep)).peak_bytes;
}

/// For graphs with a handful of values that may be dropped.
class BruteForce {
 public:
  explicit BruteForce(const Graph& graph)
      : graph_(graph), simulator_(graph), actions_(graph.values.size(), Action::kKeep) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].returns()) away_.push_back(v);
    }
    if (choices() <= kMostChoices) look(0);
  }
  static constexpr size_t kMostChoices = 6;  ///< more are not tried
  size_t choices() const { return away_.size(); }
  /// The least seconds within `budget`; infinite if nothing fits.
  double least_seconds(int64_t budget) const {
    double least = INFINITY;
    for (const auto& [peak, seconds] : found_) {
      if (peak <= budget) least = std::min(least, seconds);
    }
    return least;
  }
  int64_t lowest_peak() const { return found_.empty() ? INT64_MAX : found_.begin()->first; }

 private:
  void look(size_t next) {
    if (next == away_.size()) {
      const Simulation run = simulator_.run(actions_);
      auto& seconds = found_.try_emplace(run.peak_bytes, run.seconds).first->second;
      seconds = std::min(seconds, run.seconds);
      return;
    }
    for (const Action action : {Action::kKeep, Action::kRecompute, Action::recompute(2), Action::recompute(3),
                                Action::kRecomputeEachTime, Action::kPack}) {
      const GraphValue& value = graph_.values[away_[next]];
      if (action == Action::kPack && value.packed_bytes == 0) continue;
      if (action == Action::kRecompute && value.dropped) continue;  // as kKeep
      actions_[away_[next]] = action;
      look(next + 1);
    }
  }

  const Graph& graph_;
  Simulator simulator_;
  std::vector<Action> actions_;
  std::vector<size_t> away_;
  std::map<int64_t, double> found_;
};

}  // namespace remat::test

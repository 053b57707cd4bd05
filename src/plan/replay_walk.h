// src/plan/replay_walk.h -- which operators a replay runs, on the graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <remat/graph.h>

#include "plan/replay_operators.h"

namespace remat {

/// Not thread-safe.
class ReplayWalk {
 public:
  explicit ReplayWalk(const Graph& graph)
      : reads(graph.values.size(), 0), operators(graph), graph_(graph), visited_(graph.operators.size(), 0) {}

  /// The operators that recompute `target` from the values for which `held` is true, in the order of the forward pass.
  /// Counts in `reads` how often they read each value, and one read of `target` for the caller. Valid until the next
  /// call.
  template <class Held>
  const std::vector<int32_t>& operators_for(int32_t target, Held held) {
    ++visit_;
    found_.clear();
    missing_.assign(1, target);
    reads[target] = 1;
    while (!missing_.empty()) {
      const int32_t producer = graph_.values[missing_.back()].producer;
      missing_.pop_back();
      if (producer < 0 || visited_[producer] == visit_) continue;
      visited_[producer] = visit_;
      found_.push_back(producer);
      for (const int32_t input : operators.inputs(producer)) {
        if (reads[input]++ == 0 && !held(input)) missing_.push_back(input);
      }
    }
    std::sort(found_.begin(), found_.end());
    return found_;
  }

  /// By value: reads to come. The caller subtracts each read that is done, so that all are 0 when the replay is over.
  std::vector<int32_t> reads;

  ReplayOperators operators;

 private:
  const Graph& graph_;
  std::vector<uint32_t> visited_;  ///< by operator: the last replay that runs it
  uint32_t visit_ = 0;
  std::vector<int32_t> found_, missing_;
};

}  // namespace remat

// src/plan/replay_walk.h -- which operators a replay on the graph runs: one search for all that replay on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <remat/graph.h>

#include "plan/replay_operators.h"

namespace remat {

/// Not thread-safe: it keeps its arrays.
class ReplayWalk {
 public:
  explicit ReplayWalk(const Graph& graph)
      : reads(graph.values.size(), 0), operators(graph), graph_(graph), visited_(graph.operators.size(), 0) {}

  /// The operators that bring `target` back, in their order: backwards to the values for which `held` is true. Counts
  /// in `reads` what they read, and one read of `target` for the caller. Valid until the next call.
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

  /// By value: reads to come. The caller takes off what it has done, so that all are 0 when the replay is over.
  std::vector<int32_t> reads;

  ReplayOperators operators;

 private:
  const Graph& graph_;
  std::vector<uint32_t> visited_;  ///< operators: the last replay that runs them
  uint32_t visit_ = 0;
  std::vector<int32_t> found_, missing_;
};

}  // namespace remat

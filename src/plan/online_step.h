// src/plan/online_step.h -- a step under the online policy of src/session/eviction.cpp, on the graph.
//
// OnlineStep is the policy of a StepMachine: before memory rises above the limit it evicts. Unlike at run time, the
// graph tells how far memory rises between two events, not when, so everything that is needed until the next event is
// evicted at once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/eviction_choice.h"
#include "plan/planners.h"
#include "plan/step_machine.h"

namespace remat::planners {

class OnlineStep {
 public:
  OnlineStep(const Graph& graph, PlannerOptions options);
  OnlineStep(const OnlineStep&) = delete;
  OnlineStep& operator=(const OnlineStep&) = delete;

  /// Runs the step under a memory limit in bytes, baseline included. Returns by value the last eviction as an action: a
  /// value that was evicted after n recomputes is held from recompute n + 1 on.
  Actions run(int64_t limit);
  /// The last run was ended, because it replayed or searched too much.
  bool has_stopped() const;
  /// The most that was alive in the last run, in bytes: above the limit where nothing was left to evict, INT64_MAX
  /// where it has_stopped().
  int64_t peak_bytes() const { return peak_; }

  // The policy of StepMachine.
  void begin(const StepChange& change);
  Action action(int32_t /*value*/) const { return Action::kKeep; }
  bool holds(int32_t /*value*/, int32_t /*times*/) {
    ++work_;
    return true;
  }
  int64_t evict(int64_t level);

 private:
  struct View;

  bool may_be_evicted(int32_t value) const;
  std::vector<EvictionOption> options() const;
  int64_t take(const EvictionOption& option);

  const Graph& graph_;
  const bool pack_;
  const std::vector<StepChange> changes_;
  const std::vector<ValueState> initial_;
  std::vector<int32_t> returning_;  ///< values with GraphValue::returns()

  // Of the run in progress.
  std::vector<ValueState> states_;
  StepMachine<std::vector<ValueState>, OnlineStep> machine_;
  Actions actions_;
  int64_t limit_ = 0, peak_ = 0, drops_ = 0;
  int64_t work_ = 0;              ///< values that were looked at or recomputed
  std::vector<int32_t> in_use_;   ///< values that the backward node in progress holds
  bool node_continues_ = false;   ///< the next use is of the same backward node
  std::vector<bool> idle_;        ///< by value: only saved tensors hold it, or a node in progress
  std::vector<uint32_t> visits_;  ///< by operator: the last eviction whose prices came by
  uint32_t visit_ = 0;
};

}  // namespace remat::planners

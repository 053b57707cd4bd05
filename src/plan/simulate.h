// src/plan/simulate.h -- the memory and the time of a step under a plan, from the graph alone.
//
// Every plan is judged by this one simulator; planners never certify themselves.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

#include "plan/step_machine.h"

namespace remat {

struct Simulation {
  int64_t peak_bytes = 0;  ///< baseline included
  size_t peak_event = 0;   ///< during which it is reached, the first if several
  double seconds = 0;      ///< of replays, packing and unpacking
  int64_t replays = 0;     ///< operators
  bool stopped = false;    ///< before the end of the step: the rest says what was seen so far
};

/// Runs a step of a sound graph under one plan after another. Not thread-safe: it keeps its arrays.
class Simulator {
 public:
  explicit Simulator(const Graph& graph);

  /// `actions`: one for each value, as in a valid plan. Stops once more than `most_replays` operators have been
  /// replayed.
  Simulation run(const std::vector<Action>& actions, int64_t most_replays = INT64_MAX);

 private:
  const Graph& graph_;
  const std::vector<StepChange> changes_;
  const std::vector<ValueState> initial_;
  std::vector<ValueState> states_;  ///< of the run in progress
  PlanPolicy policy_;
  StepMachine<std::vector<ValueState>, PlanPolicy> machine_;
};

}  // namespace remat

// src/plan/simulate.h -- predicts the memory and the time of a step under a plan, from the graph alone.
//
// The prediction of every plan comes from this simulator, whichever planner made it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

#include "plan/step_machine.h"
#include "plan/step_times.h"

namespace remat {

struct Simulation {
  int64_t peak_bytes = 0;  ///< baseline included
  size_t peak_event = 0;   ///< the first event at which the peak is reached
  int64_t tier_bytes = 0;  ///< the most that the tier holds at once
  double seconds = 0;      ///< of replays, packing, unpacking and waiting for copies
  int64_t replays = 0;     ///< operators that replays ran
  double excess = 0;       ///< bytes above a limit, summed over sections of the step; IncrementalSimulator's alone
  bool stopped = false;    ///< before the end of the step: the other figures are those until then
};

/// Simulates a step of a sound graph under one plan after another. Not thread-safe.
class Simulator {
 public:
  explicit Simulator(const Graph& graph);

  /// `actions`: one for each value, as in a valid plan. Above `limit` bytes, baseline included, values that are moved
  /// make room. Stops once more than `most_replays` operators have been replayed.
  Simulation run(const std::vector<Action>& actions, int64_t limit = INT64_MAX, int64_t most_replays = INT64_MAX);

 private:
  const Graph& graph_;
  const std::vector<StepChange> changes_;
  const std::vector<ValueState> initial_;
  std::vector<ValueState> states_;  ///< of the run in progress
  PlanPolicy policy_;
  std::optional<StepTimes> times_;        ///< once values are moved
  std::vector<StepChange> every_change_;  ///< then, too: when a copy is waited for depends on the event
  StepMachine<std::vector<ValueState>, PlanPolicy> machine_;
};

/// The peak of a step of a sound graph that keeps every value. Below plain's where it reuses memory
/// (GraphEvent::reused).
int64_t kept_peak_bytes(const Graph& graph);

}  // namespace remat

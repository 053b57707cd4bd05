// src/export/schedule.h -- a step under a plan as a list of calls, and the memory that each needs.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/plan.h>

#include "export/step_graph.h"

namespace remat::exporting {

/// The contents of a buffer from one call that makes it to the last one that reads it.
struct Instance {
  int32_t buffer = -1;  ///< -1: workspace
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  ///< calls
  int32_t over = -1;            ///< the instance in whose memory it is; -1: it has its own
};

struct ScheduledCall {
  int32_t op = -1;                       ///< of the step; -1: the update of a parameter by its stored gradient
  int32_t gradient = -1;                 ///< of an update: an index of step.gradients
  std::vector<int32_t> inputs, results;  ///< instances; -1: absent, or a buffer with a place of its own
  int32_t workspace = -1;                ///< an instance
  bool again = false;
};

struct Schedule {
  std::vector<ScheduledCall> calls;
  std::vector<Instance> instances;
  std::vector<int32_t> late;  ///< gradients whose parameters are read by a replay after their update: not sound
};

/// What a step does under a plan of its graph: the calls of the planner's simulation, with the updates.
Schedule schedule_of(const StepFlow& flow, const StepGraph& graph, const std::vector<Action>& actions);
/// The calls of the prediction.
Schedule schedule_of_prediction(const Step& step);

}  // namespace remat::exporting

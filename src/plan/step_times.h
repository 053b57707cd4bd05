// src/plan/step_times.h -- when the events of a plain step happened, as far as its graph tells.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>

namespace remat {

struct StepTimes {
  /// The time before an event of the graph: since the one before it, or since the step began.
  struct Stretch {
    double begin_seconds = 0;
    int32_t op = -1;        ///< the operator that runs, or whose backward pass does; -1: none
    bool backward = false;  ///< the latter
  };
  std::vector<Stretch> stretches;  ///< one for each event, and that after the last event
  double backward_seconds = 0;     ///< when the first value is used
  double end_seconds = 0;
  bool timed = true;  ///< false: the graph has no times; each stretch takes 1
};

/// An operator's event is its end: it ran in the stretch before. The graph has no times of backward, only that of the
/// whole step. Backward goes through the operators from the last to the first, and each use of a value tells roughly
/// where it is: what the forward pass leaves of the step's time is shared out in proportion to the times of the
/// operators that backward passes by.
StepTimes step_times(const Graph& graph);

}  // namespace remat

// src/export/step_graph.h -- a step as a graph for planners.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>

#include "export/step.h"

namespace remat::exporting {

/// What becomes of one parameter's gradient.
struct UpdatePlace {
  bool fused = false;   ///< its operator updates the parameter as it goes; nothing is stored
  int32_t after = -1;   ///< stored, and used for the update after this operator; of a fused one its own
  bool at_end = false;  ///< after everything else: a replay reads the parameter late
};

/// Which operator reads and makes what, and which results go where inputs were.
struct StepFlow {
  explicit StepFlow(const Step& step);

  const Step& step;
  std::vector<int32_t> producer;       ///< by buffer: an operator; -1: none
  std::vector<int32_t> last_forward;   ///< by buffer: the last forward operator that reads or makes it; -1: none
  std::vector<int32_t> last_backward;  ///< by buffer: the last backward operator that reads it; -1: none
  std::vector<int32_t> gradient_of;    ///< by buffer: an index of step.gradients; -1: it is no gradient
  std::vector<int32_t> over;           ///< by operator: the input that its first suitable result lies over; -1: none
  std::vector<UpdatePlace> updates;    ///< by index of step.gradients

  bool is_forward(int32_t op) const { return step.operators[op].phase == StepOperator::Phase::kForward; }
  bool is_backward(int32_t op) const { return step.operators[op].phase == StepOperator::Phase::kBackward; }
  /// Made by the forward pass and read by the backward pass.
  bool is_saved(int32_t buffer) const {
    return step.is_value(buffer) && producer[buffer] >= 0 && is_forward(producer[buffer]) && last_backward[buffer] >= 0;
  }
  /// The result that goes over the input `over[op]`.
  int32_t result_over(int32_t op) const;
  /// Moves the update of a parameter to the end of the step.
  void defer(int32_t gradient);

 private:
  void find_places();
  void find_updates();
};

/// A step's graph, with what planners do not need to know: which events are which operators.
struct StepGraph {
  Graph graph;
  std::vector<int32_t> value_of;     ///< by buffer: its value; -1: none
  std::vector<int32_t> operator_of;  ///< by operator of the graph, one of the step
  std::vector<int32_t> backward_at;  ///< by event: the backward operator that runs there; -1: none
};

/// `fixed_bytes`: alive all the time besides parameters, state and batch. `rule`: of the optimizer, for costs.
StepGraph graph_of(const StepFlow& flow, int64_t fixed_bytes, std::string_view rule);

}  // namespace remat::exporting

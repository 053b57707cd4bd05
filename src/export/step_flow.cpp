#include <algorithm>

#include "export/kernels.h"
#include "export/step_graph.h"

namespace remat::exporting {

StepFlow::StepFlow(const Step& of) : step(of) {
  const size_t count = step.buffers.size();
  producer.assign(count, -1);
  last_forward.assign(count, -1);
  last_backward.assign(count, -1);
  gradient_of.assign(count, -1);
  over.assign(step.operators.size(), -1);
  for (size_t g = 0; g < step.gradients.size(); ++g) gradient_of[step.gradients[g].gradient] = static_cast<int32_t>(g);
  for (int32_t i = 0; i < static_cast<int32_t>(step.operators.size()); ++i) {
    const StepOperator& op = step.operators[i];
    if (op.phase == StepOperator::Phase::kPredict) break;
    for (const int32_t result : op.results) {
      if (result < 0) continue;
      producer[result] = i;
      if (is_forward(i)) last_forward[result] = i;
    }
    for (const StepRead& read : op.inputs) {
      if (read.buffer < 0) continue;
      (is_forward(i) ? last_forward : last_backward)[read.buffer] = i;
    }
  }
  find_updates();
  find_places();
}

int32_t StepFlow::result_over(int32_t op) const {
  const StepOperator& call = step.operators[op];
  for (const auto& [input, result] : call.in_place) {
    if (input == over[op]) return call.results[result];
  }
  return -1;
}

/// An input that is read for the last time makes way for a result. Of the forward pass it must have the result's size,
/// since the two are values of a graph. What dies whatever the plan is preferred to what a plan may keep.
void StepFlow::find_places() {
  for (int32_t i = 0; i < static_cast<int32_t>(step.operators.size()); ++i) {
    const StepOperator& op = step.operators[i];
    if (op.phase == StepOperator::Phase::kPredict) break;
    for (const bool saved : {false, true}) {
      for (const auto& [input, result] : op.in_place) {
        const int32_t from = op.inputs[input].buffer, to = op.results[result];
        if (over[i] >= 0 || from < 0 || to < 0 || from == step.loss || to == step.loss) continue;
        const auto same = [&](const StepRead& read) { return read.buffer == from; };
        if (std::ranges::count_if(op.inputs, same) != 1 || gradient_of[from] >= 0) continue;
        const bool forward = is_forward(i);
        if (forward && (step.buffers[from].bytes != step.buffers[to].bytes || last_forward[from] != i)) continue;
        if (!forward && last_backward[from] != i) continue;
        const bool fused = gradient_of[to] >= 0 && updates[gradient_of[to]].fused;
        if (fused || is_saved(from) != saved) continue;
        over[i] = input;
      }
    }
  }
}

/// A gradient is used at once where its kernel can and nobody reads the parameter, or the gradient, later.
void StepFlow::find_updates() {
  updates.assign(step.gradients.size(), {});
  for (size_t g = 0; g < step.gradients.size(); ++g) {
    const auto [parameter, gradient, transposed] = step.gradients[g];
    UpdatePlace& place = updates[g];
    const int32_t made = producer[gradient];
    const Kernel& kernel = *find_kernel(step.operators[made].kernel);
    const bool sinks = std::ranges::any_of(kernel.results, &KernelTensor::sink);
    const auto same = [&](const StepGradient& other) { return other.gradient == gradient; };
    const bool single = std::ranges::count_if(step.gradients, same) == 1;
    place.after = std::max({made, last_backward[parameter], last_backward[gradient]});
    place.fused = sinks && single && is_backward(made) && place.after == made && last_backward[gradient] < 0;
  }
}

void StepFlow::defer(int32_t gradient) {
  updates[gradient].fused = false;
  updates[gradient].at_end = true;
  over.assign(over.size(), -1);
  find_places();
}

}  // namespace remat::exporting

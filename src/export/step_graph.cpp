#include "export/step_graph.h"

#include <algorithm>
#include <utility>

#include "export/costs.h"

namespace remat::exporting {
namespace {

constexpr double kSecondsPerInstruction = 1e-9;  // planners compare; the unit means nothing

template <class Item>
void add_once(std::vector<Item>& list, Item item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

class GraphBuilder {
 public:
  GraphBuilder(const StepFlow& flow, std::string_view rule) : flow_(flow), step_(flow.step), rule_(rule) {
    result_.value_of.assign(step_.buffers.size(), -1);
    held_.assign(step_.buffers.size(), 0);
  }

  StepGraph run(int64_t fixed_bytes) {
    Graph& graph = result_.graph;
    graph.baseline_bytes = fixed_bytes;
    for (int32_t b = 0; b < static_cast<int32_t>(step_.buffers.size()); ++b) {
      const StepBuffer& buffer = step_.buffers[b];
      if (buffer.kind == StepBuffer::Kind::kValue || buffer.kind == StepBuffer::Kind::kConstant || b == step_.counter)
        continue;
      graph.baseline_bytes += buffer.bytes;
      if (buffer.kind == StepBuffer::Kind::kParameter) graph.parameter_bytes += buffer.bytes;
      add_value(b, -1, false);
    }
    for (int32_t i = 0; i < static_cast<int32_t>(step_.operators.size()); ++i) {
      if (flow_.is_forward(i)) forward(i);
      if (flow_.is_backward(i)) backward(i);
    }
    for (size_t g = 0; g < flow_.updates.size(); ++g) {
      if (!flow_.updates[g].at_end) continue;
      graph.step_seconds += update_seconds(g);
      other(0, -release(step_.gradients[g].gradient));
    }
    return std::move(result_);
  }

 private:
  void add_value(int32_t buffer, int32_t producer, bool droppable) {
    result_.value_of[buffer] = static_cast<int32_t>(result_.graph.values.size());
    // The loss has a place of its own among what is fixed.
    const int64_t bytes = buffer == step_.loss ? 0 : step_.buffers[buffer].bytes;
    result_.graph.values.push_back({.bytes = bytes, .producer = producer, .droppable = droppable});
  }
  int64_t bytes(int32_t buffer) const { return result_.graph.values[result_.value_of[buffer]].bytes; }

  void event(GraphEvent::Kind kind, int32_t index, int64_t rise, int64_t delta, int32_t backward = -1) {
    result_.graph.events.push_back(
        {.kind = kind, .index = index, .rise = std::max({rise, delta, int64_t{0}}), .delta = delta});
    result_.backward_at.push_back(backward);
  }
  void other(int64_t rise, int64_t delta, int32_t backward = -1) {
    event(GraphEvent::Kind::kOther, -1, rise, delta, backward);
  }

  /// Buffers that an operator reads or makes, each once.
  std::vector<int32_t> touched(const StepOperator& op) const {
    std::vector<int32_t> list;
    for (const StepRead& read : op.inputs)
      if (step_.is_value(read.buffer)) add_once(list, read.buffer);
    for (const int32_t result : op.results)
      if (result >= 0) add_once(list, result);
    return list;
  }

  void forward(int32_t i) {
    const StepOperator& op = step_.operators[i];
    Graph& graph = result_.graph;
    const auto index = static_cast<int32_t>(graph.operators.size());
    GraphOperator own;
    own.name = "remat::" + op.kernel;
    own.scratch_bytes = op.workspace;
    own.seconds = own.replay_seconds = kSecondsPerInstruction * instructions_of(op, rule_);
    graph.step_seconds += own.seconds;
    int64_t made = 0;
    for (const int32_t result : op.results) {
      if (result < 0) continue;
      add_value(result, index, flow_.is_saved(result));
      own.results.push_back(result_.value_of[result]);
      made += bytes(result);
    }
    for (const StepRead& read : op.inputs) {
      if (read.buffer >= 0 && result_.value_of[read.buffer] >= 0) add_once(own.inputs, result_.value_of[read.buffer]);
    }
    std::ranges::sort(own.inputs);
    // A replay may go over an input where forward does not, as others read it there.
    const int32_t over = flow_.over[i] >= 0 ? op.inputs[flow_.over[i]].buffer : -1;
    if (over >= 0) own.overwritten.push_back(result_.value_of[over]);
    int64_t reused = 0;
    if (over >= 0 && flow_.is_saved(over)) {
      event(GraphEvent::Kind::kIdle, result_.value_of[over], 0, 0);  // dropped now, it leaves its place to the result
    } else if (over >= 0) {
      reused = bytes(over);
    }
    other(made + op.workspace - reused, made - reused);
    graph.operators.push_back(std::move(own));
    result_.operator_of.push_back(i);
    int64_t dead = 0;
    for (const int32_t b : touched(op)) {
      if (flow_.last_forward[b] == i && !flow_.is_saved(b) && b != over) dead += bytes(b);
    }
    event(GraphEvent::Kind::kOperator, index, 0, -dead);
    for (const int32_t b : touched(op)) {
      if (flow_.last_forward[b] == i && flow_.is_saved(b) && b != over)
        event(GraphEvent::Kind::kIdle, result_.value_of[b], 0, 0);
    }
  }

  void backward(int32_t i) {
    const StepOperator& op = step_.operators[i];
    std::vector<int32_t> saved;
    for (const StepRead& read : op.inputs) {
      if (read.buffer >= 0 && flow_.is_saved(read.buffer)) add_once(saved, read.buffer);
    }
    for (const int32_t b : saved) event(GraphEvent::Kind::kUse, result_.value_of[b], 0, 0);
    const int32_t over = flow_.over[i] >= 0 ? op.inputs[flow_.over[i]].buffer : -1;
    const int32_t result_over = over >= 0 ? flow_.result_over(i) : -1;
    bool fused = false;
    int64_t made = 0;
    for (const int32_t result : op.results) {
      if (result < 0) continue;
      const int32_t gradient = flow_.gradient_of[result];
      if (gradient >= 0 && flow_.updates[gradient].fused) {
        fused = true;
      } else if (result != result_over) {
        held_[result] = step_.buffers[result].bytes;
        made += held_[result];
      }
    }
    result_.graph.step_seconds += kSecondsPerInstruction * instructions_of(op, fused ? rule_ : "store");
    other(made + op.workspace, made, i);
    for (const int32_t b : saved) {
      if (flow_.last_backward[b] != i) continue;
      // What goes over a saved value keeps all of its memory.
      const int64_t kept = b == over ? bytes(b) : 0;
      event(GraphEvent::Kind::kFree, result_.value_of[b], kept, kept);
      if (b == over) held_[result_over] = kept;
    }
    int64_t dead = 0;
    for (const int32_t b : touched(op)) {
      if (flow_.producer[b] < 0 || !flow_.is_backward(flow_.producer[b])) continue;
      if (b == over) {
        held_[result_over] = std::exchange(held_[b], 0);
      } else if (flow_.last_backward[b] <= i && flow_.gradient_of[b] < 0) {
        dead += release(b);
      }
    }
    for (size_t g = 0; g < flow_.updates.size(); ++g) {
      if (flow_.updates[g].fused || flow_.updates[g].at_end || flow_.updates[g].after != i) continue;
      result_.graph.step_seconds += update_seconds(g);
      dead += release(step_.gradients[g].gradient);
    }
    other(0, -dead);
  }

  int64_t release(int32_t buffer) { return std::exchange(held_[buffer], 0); }
  double update_seconds(size_t g) const {
    const auto elements = static_cast<double>(step_.buffers[step_.gradients[g].parameter].elements);
    return kSecondsPerInstruction * instructions_of({{"call", 1}, {"put." + std::string(rule_), elements}});
  }

  const StepFlow& flow_;
  const Step& step_;
  const std::string_view rule_;
  StepGraph result_;
  std::vector<int64_t> held_;  // by buffer that backward made: the bytes that it has
};

}  // namespace

StepGraph graph_of(const StepFlow& flow, int64_t fixed_bytes, std::string_view rule) {
  return GraphBuilder(flow, rule).run(fixed_bytes);
}

}  // namespace remat::exporting

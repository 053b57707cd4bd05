#include "export/schedule.h"

#include <algorithm>

#include "plan/simulate.h"
#include "plan/step_machine.h"

namespace remat::exporting {
namespace {

/// Appends calls, and gives each result an instance.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const Step& step) : step_(step), current_(step.buffers.size(), -1) {}

  /// `keeps(result)`: whether later calls are to read this one's result rather than what is there already.
  template <class Keeps>
  void call(int32_t index, bool again, Keeps keeps) {
    const StepOperator& op = step_.operators[index];
    ScheduledCall& made = schedule.calls.emplace_back();
    made.op = index;
    made.again = again;
    for (const StepRead& read : op.inputs) made.inputs.push_back(use(read.buffer));
    for (const int32_t result : op.results) {
      made.results.push_back(result < 0 || result == step_.loss ? -1 : add(result, step_.buffers[result].bytes));
      if (made.results.back() >= 0 && keeps(result)) current_[result] = made.results.back();
    }
    if (op.workspace > 0) made.workspace = add(-1, op.workspace);
  }

  void update(int32_t gradient) {
    ScheduledCall& made = schedule.calls.emplace_back();
    made.gradient = gradient;
    made.inputs.push_back(use(step_.gradients[gradient].gradient));
  }

  /// The result of the last call goes over one of its inputs, if that is read for the last time there.
  void put_over(size_t call, int32_t input, int32_t result) {
    const ScheduledCall& made = schedule.calls[call];
    const int32_t from = made.inputs[input], to = made.results[result];
    if (from < 0 || to < 0 || schedule.instances[from].last != static_cast<int32_t>(call)) return;
    if (std::ranges::count(made.inputs, from) == 1) schedule.instances[to].over = from;
  }

  Schedule schedule;

 private:
  int32_t at() const { return static_cast<int32_t>(schedule.calls.size()) - 1; }
  int32_t add(int32_t buffer, int64_t bytes) {
    schedule.instances.push_back({buffer, bytes, at(), at(), -1});
    return static_cast<int32_t>(schedule.instances.size()) - 1;
  }
  int32_t use(int32_t buffer) {
    if (buffer < 0 || current_[buffer] < 0) return -1;
    schedule.instances[current_[buffer]].last = at();
    return current_[buffer];
  }

  const Step& step_;
  std::vector<int32_t> current_;  // by buffer
};

/// A plan's policy that also writes the schedule.
struct SchedulingPolicy : PlanPolicy {
  ScheduleBuilder* builder = nullptr;
  const StepGraph* graph = nullptr;
  const std::vector<ValueState>* states = nullptr;

  void will_replay(int32_t op, int32_t /*target*/) const {
    builder->call(graph->operator_of[op], true, [this](int32_t buffer) {
      return (*states)[graph->value_of[buffer]].memory == ValueState::Memory::kGone;
    });
  }
};

void put_results_over_inputs(const StepFlow& flow, ScheduleBuilder& builder) {
  for (size_t c = 0; c < builder.schedule.calls.size(); ++c) {
    const int32_t op = builder.schedule.calls[c].op;
    if (op < 0 || flow.over[op] < 0) continue;
    for (const auto& [input, result] : flow.step.operators[op].in_place) {
      if (input != flow.over[op]) continue;
      builder.put_over(c, input, result);
      break;
    }
  }
}

/// Gradients whose parameters are read after they were updated.
std::vector<int32_t> late_reads(const StepFlow& flow, const Schedule& schedule) {
  const Step& step = flow.step;
  std::vector<int32_t> updated_by(step.buffers.size(), -1), late;  // by parameter: its gradient
  for (const ScheduledCall& call : schedule.calls) {
    if (call.op < 0) {
      updated_by[step.gradients[call.gradient].parameter] = call.gradient;
      continue;
    }
    for (const StepRead& read : step.operators[call.op].inputs) {
      const int32_t gradient = read.buffer < 0 ? -1 : updated_by[read.buffer];
      if (gradient >= 0 && std::ranges::find(late, gradient) == late.end()) late.push_back(gradient);
    }
    for (const int32_t result : step.operators[call.op].results) {
      const int32_t gradient = result < 0 ? -1 : flow.gradient_of[result];
      if (gradient >= 0 && flow.updates[gradient].fused) updated_by[step.gradients[gradient].parameter] = gradient;
    }
  }
  return late;
}

}  // namespace

Schedule schedule_of(const StepFlow& flow, const StepGraph& graph, const std::vector<Action>& actions) {
  const auto changes = changes_of(graph.graph, ChangesOf::kEveryEvent);
  std::vector<ValueState> states = initial_states(graph.graph);
  ScheduleBuilder builder(flow.step);
  SchedulingPolicy policy;
  policy.actions = &actions;
  policy.builder = &builder;
  policy.graph = &graph;
  policy.states = &states;
  StepMachine machine(graph.graph, states, policy);
  machine.level = graph.graph.baseline_bytes;
  const auto all = [](int32_t) { return true; };
  machine.run(changes.data() + 1, changes.data() + changes.size(), [&](const StepChange& change, int64_t) {
    if (change.kind == GraphEvent::Kind::kOperator) {
      builder.call(graph.operator_of[graph.graph.events[change.event].index], false, all);
    }
    const int32_t backward = graph.backward_at[change.event];
    if (backward < 0) return true;
    builder.call(backward, false, all);
    // What is fused with its operator makes nothing.
    for (size_t r = 0; r < builder.schedule.calls.back().results.size(); ++r) {
      const int32_t result = flow.step.operators[backward].results[r];
      const int32_t gradient = result < 0 ? -1 : flow.gradient_of[result];
      if (gradient < 0 || !flow.updates[gradient].fused) continue;
      int32_t& instance = builder.schedule.calls.back().results[r];
      builder.schedule.instances[instance].bytes = 0;
      instance = -1;
    }
    for (size_t g = 0; g < flow.updates.size(); ++g) {
      const UpdatePlace& place = flow.updates[g];
      if (!place.fused && !place.at_end && place.after == backward) builder.update(static_cast<int32_t>(g));
    }
    return true;
  });
  for (size_t g = 0; g < flow.updates.size(); ++g) {
    if (flow.updates[g].at_end) builder.update(static_cast<int32_t>(g));
  }
  put_results_over_inputs(flow, builder);
  Schedule schedule = std::move(builder.schedule);
  schedule.late = late_reads(flow, schedule);
  return schedule;
}

Schedule schedule_of_prediction(const Step& step) {
  ScheduleBuilder builder(step);
  for (int32_t i = 0; i < static_cast<int32_t>(step.operators.size()); ++i) {
    if (step.operators[i].phase != StepOperator::Phase::kPredict) continue;
    builder.call(i, false, [](int32_t) { return true; });
  }
  Schedule schedule = std::move(builder.schedule);
  const auto end = static_cast<int32_t>(schedule.calls.size()) - 1;
  for (Instance& instance : schedule.instances) {
    if (instance.buffer == step.output && step.output >= 0) instance.last = end;
  }
  builder.schedule = std::move(schedule);
  for (size_t c = 0; c < builder.schedule.calls.size(); ++c) {
    const StepOperator& op = step.operators[builder.schedule.calls[c].op];
    for (const auto& [input, result] : op.in_place) {
      builder.put_over(c, input, result);
      if (builder.schedule.instances[builder.schedule.calls[c].results[result]].over >= 0) break;
    }
  }
  return std::move(builder.schedule);
}

}  // namespace remat::exporting

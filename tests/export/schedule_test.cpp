#include "export/schedule.h"

#include <algorithm>

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "export/placement.h"
#include "export/step_sample.h"

namespace remat::exporting {
namespace {

/// No two instances that are alive at the same time share a byte, but for those that lie over each other on purpose.
void expect_apart(const Schedule& schedule, const Placement& placement) {
  const auto root = [&](size_t i) {
    while (schedule.instances[i].over >= 0) i = static_cast<size_t>(schedule.instances[i].over);
    return i;
  };
  for (size_t i = 0; i < schedule.instances.size(); ++i) {
    const Instance& a = schedule.instances[i];
    EXPECT_LE(placement.offset[i] + a.bytes, placement.bytes);
    for (size_t j = 0; j < i; ++j) {
      const Instance& b = schedule.instances[j];
      const bool together = a.first <= b.last && b.first <= a.last && a.bytes > 0 && b.bytes > 0;
      if (!together || root(i) == root(j)) continue;
      const bool apart =
          placement.offset[i] >= placement.offset[j] + b.bytes || placement.offset[j] >= placement.offset[i] + a.bytes;
      EXPECT_TRUE(apart) << i << " and " << j;
    }
  }
}

/// What each call reads was made by a call before it, and is what the step says.
void expect_sound(const Step& step, const Schedule& schedule) {
  std::vector<bool> updated(step.buffers.size(), false);
  for (size_t c = 0; c < schedule.calls.size(); ++c) {
    const ScheduledCall& call = schedule.calls[c];
    if (call.op < 0) {
      updated[step.gradients[call.gradient].parameter] = true;
      continue;
    }
    const StepOperator& op = step.operators[call.op];
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int32_t buffer = op.inputs[i].buffer;
      if (buffer < 0) continue;
      EXPECT_FALSE(updated[buffer]) << "call " << c << " reads an updated parameter";
      if (!step.is_value(buffer) || buffer == step.loss) continue;
      ASSERT_GE(call.inputs[i], 0);
      EXPECT_EQ(schedule.instances[call.inputs[i]].buffer, buffer);
      EXPECT_LE(schedule.instances[call.inputs[i]].first, static_cast<int32_t>(c));
    }
  }
}

int count_of(const Step& step, const Schedule& schedule, const std::string& kernel) {
  return static_cast<int>(std::ranges::count_if(schedule.calls, [&](const ScheduledCall& call) {
    return call.op >= 0 && step.operators[call.op].kernel == kernel;
  }));
}

TEST(Schedule, KeepsToThePlannersPrediction) {
  const Step step = chain_step(12, 24);
  const StepFlow flow(step);
  const StepGraph graph = graph_of(flow, 48, "sgd");
  ASSERT_EQ(graph.graph.problem(), "");
  const int64_t plain = graph.graph.plain_peak_bytes(), baseline = graph.graph.baseline_bytes;
  const int64_t least = plan_curve(graph.graph, {}).back().predicted_peak_bytes;
  ASSERT_LT(least, plain);
  int replayed = 0;
  for (int part = 0; part <= 8; ++part) {
    const Plan plan = make_plan(graph.graph, least + (plain - least) * part / 8, "auto", {.pack = false});
    const Schedule schedule = schedule_of(flow, graph, plan.actions);
    EXPECT_TRUE(schedule.late.empty());
    expect_sound(step, schedule);
    const Placement placement = place(schedule);
    expect_apart(schedule, placement);
    EXPECT_EQ(placement.live_bytes, plan.predicted_peak_bytes - baseline);
    EXPECT_GE(placement.bytes, placement.live_bytes);
    replayed += static_cast<int>(std::ranges::count_if(schedule.calls, &ScheduledCall::again));
    EXPECT_EQ(count_of(step, schedule, "matmul_grad"), 12);
  }
  EXPECT_GT(replayed, 0);
}

TEST(Schedule, UpdatesAtOnceWhereNothingReadsTheParameterLater) {
  const Step step = chain_step(3, 8);
  const StepFlow flow(step);
  for (const UpdatePlace& place : flow.updates) EXPECT_TRUE(place.fused);
}

TEST(Schedule, StoresAGradientWhoseParameterIsReadLater) {
  Step step = chain_step(3, 8);
  // The weight's gradient before the input's, which reads the weight: of the last layer, the third and fourth from the
  // beginning of the backward pass.
  const auto grad = std::ranges::find(step.operators, "matmul_grad", &StepOperator::kernel);
  std::iter_swap(grad, grad - 1);
  const StepFlow flow(step);
  EXPECT_FALSE(flow.updates[0].fused);
  EXPECT_TRUE(flow.updates[1].fused);
  const StepGraph graph = graph_of(flow, 48, "sgd");
  const std::vector<Action> keep(graph.graph.values.size(), Action::kKeep);
  const Schedule schedule = schedule_of(flow, graph, keep);
  expect_sound(step, schedule);
  EXPECT_EQ(std::ranges::count(schedule.calls, 0, &ScheduledCall::gradient), 1);
  const Placement placement = place(schedule);
  EXPECT_EQ(placement.live_bytes, predict(graph.graph, keep).peak_bytes - graph.graph.baseline_bytes);
}

TEST(Schedule, NoticesAReplayThatReadsAnUpdatedParameter) {
  Step step = chain_step(4, 8);
  // The first layer's weight is the last one's, too: its replays come after the update that the last layer makes.
  for (StepOperator& op : step.operators) {
    for (StepRead& read : op.inputs) {
      if (step.buffers[std::max(read.buffer, 0)].name == "w0" && op.phase == StepOperator::Phase::kForward) {
        for (int32_t b = 0; b < static_cast<int32_t>(step.buffers.size()); ++b)
          if (step.buffers[b].name == "w3") read.buffer = b;
      }
    }
  }
  StepFlow flow(step);
  StepGraph graph = graph_of(flow, 48, "sgd");
  std::vector<Action> drop(graph.graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < drop.size(); ++v)
    if (graph.graph.values[v].droppable) drop[v] = Action::kRecomputeEachTime;
  Schedule schedule = schedule_of(flow, graph, drop);
  ASSERT_EQ(schedule.late, std::vector<int32_t>{0});
  flow.defer(0);
  graph = graph_of(flow, 48, "sgd");
  schedule = schedule_of(flow, graph, drop);
  EXPECT_TRUE(schedule.late.empty());
  expect_sound(step, schedule);
  EXPECT_EQ(schedule.calls.back().gradient, 0);
}

}  // namespace
}  // namespace remat::exporting

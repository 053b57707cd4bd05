// Graphs that are sound and that no step would leave: whatever a file says, planners neither crash nor overflow.
#include <random>

#include <gtest/gtest.h>

#include <remat/error.h>
#include <remat/planner.h>

#include "random_graph.h"

namespace remat::test {
namespace {

/// Every planner, at four budgets: a plan, or a BudgetError where the budget is small.
void plan_with_all(const Graph& graph) {
  ASSERT_EQ(graph.problem(), "");
  constexpr int64_t kAmple = int64_t{1} << 61U;
  const int64_t floor = floor_of(graph).peak_bytes;
  for (const PlannerInfo& planner : list_planners()) {
    for (const int64_t budget : {int64_t{0}, floor, floor + (int64_t{1} << 20), kAmple}) {
      try {
        const Plan plan = make_plan(graph, budget, planner.name);
        EXPECT_EQ(plan.problem(graph), "") << planner.name;
        EXPECT_LE(plan.predicted_peak_bytes, budget) << planner.name;
        EXPECT_GE(plan.predicted_seconds, seconds_bound(graph, budget) - 1e-9) << planner.name;
      } catch (const BudgetError& error) {
        EXPECT_LT(budget, kAmple) << planner.name << ": " << error.what();
      }
    }
  }
}

/// One value of `bytes` that the timeline never counts.
Graph uncounted(int64_t bytes, double replay_seconds) {
  using Kind = GraphEvent::Kind;
  Graph graph;
  graph.values = {{64, -1, 0, false}, {bytes, 0, 0, true}};
  graph.operators = {{"aten::op", 1, replay_seconds, 0, {0}, {}, {1}}};
  graph.events = {{Kind::kOperator, 0, 0, 0}, {Kind::kIdle, 1, 0, 0}, {Kind::kUse, 1, 0, 0}};
  return graph;
}

TEST(HostileGraphs, ValuesThatTheTimelineDoesNotCount) {
  for (const int64_t bytes : {int64_t{1} << 31U, (int64_t{1} << 32U) - 1, int64_t{1} << 59U}) {
    plan_with_all(uncounted(bytes, 1));
    plan_with_all(uncounted(bytes, 0));
  }
}

TEST(HostileGraphs, PeaksOfNearlyAllBytesThatThereAre) {
  Graph graph = uncounted(int64_t{1} << 57U, 1);
  graph.events[0] = {GraphEvent::Kind::kOperator, 0, int64_t{1} << 57U, int64_t{1} << 57U};
  plan_with_all(graph);
  graph.events[2].rise = int64_t{1} << 57U;
  plan_with_all(graph);
  EXPECT_NO_THROW(make_plan(graph, int64_t{1} << 60U, "auto", {.refine = true}));
  EXPECT_THROW(make_plan(graph, INT64_MIN, "auto", {.refine = true}), BudgetError);
}

TEST(HostileGraphs, SizesThatHaveNothingToDoWithTheTimeline) {
  int sound = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(6);
    std::mt19937 random(seed);
    for (GraphValue& value : graph.values) {
      if (random() % 3 == 0) value.bytes = int64_t{1} << (random() % 50);
      if (random() % 5 == 0) value.bytes = 0;
      if (value.packed_bytes > 0 && random() % 2 == 0) value.packed_bytes = int64_t{1} << (random() % 50);
    }
    for (GraphOperator& op : graph.operators) {
      if (random() % 4 == 0) op.scratch_bytes = int64_t{1} << (random() % 50);
      if (random() % 4 == 0) op.replay_seconds = random() % 2 == 0 ? 0 : 1e10;
    }
    for (GraphEvent& event : graph.events) {
      if (random() % 5 == 0) event.rise += int64_t{1} << (random() % 50);
    }
    graph.baseline_bytes = int64_t{1} << 57U;  // what is freed was there
    if (!graph.is_valid()) continue;
    ++sound;
    plan_with_all(graph);
  }
  EXPECT_GT(sound, 50);
}

TEST(HostileGraphs, FloorOfAMillionEventsWithoutAnOperator) {
  Graph graph;
  for (int64_t level = 1; level <= 1'000'000; ++level) graph.events.push_back({GraphEvent::Kind::kOther, -1, 1, 1});
  EXPECT_EQ(floor_of(graph).peak_bytes, 1'000'000);  // in quadratic time: an hour
}

}  // namespace
}  // namespace remat::test

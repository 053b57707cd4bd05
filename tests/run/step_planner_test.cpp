// Sessions whose steps follow plans.
#include "run/step_planner.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <unistd.h>

#include <remat/planner.h>

#include "planned_loop.h"
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// One operator that makes a value of 64 bytes.
Graph one_operator() {
  Graph graph;
  graph.values.push_back({.bytes = 64, .producer = 0});
  graph.operators.emplace_back().name = "aten::op";
  graph.operators[0].results = {0};
  graph.events.push_back({GraphEvent::Kind::kOperator, 0, 64, 64});
  return graph;
}

TEST(StepPlanner, CountsOnTheMostThatContentsWerePackedTo) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  graph.values[0].droppable = true;
  graph.events.push_back({GraphEvent::Kind::kIdle, 0, 0, 0});
  for (const auto& [seen, counted] : {std::pair{8, 8}, {16, 16}, {8, 16}, {0, 0}, {8, 0}}) {
    graph.values[0].packed_bytes = seen;
    planner.observe(graph, /*room=*/100);
    EXPECT_EQ(planner.graph()->values[0].packed_bytes, counted) << seen;
  }
}

TEST(StepPlanner, DoesNotPlanAnewForWhatIsAliveBefore) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (int i = 0; i < 4; ++i) planner.observe(graph, /*room=*/100);
  const auto before = planner.schedules(100);
  graph.baseline_bytes += 4;
  planner.observe(graph, /*room=*/100);
  EXPECT_EQ(planner.schedules(100), before);
  const auto other = planner.schedules(80);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0]->plan.predicted_peak_bytes, 4 + 64);
}

TEST(StepPlanner, UsesTheMedianOfTheTimesSeen) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (const double seconds : {9.0, 1.0, 2.0, 1.5}) {
    EXPECT_TRUE(planner.wants_trace());
    graph.operators[0].seconds = graph.operators[0].replay_seconds = seconds;
    graph.step_seconds = 10 * seconds;
    planner.observe(graph, /*room=*/100);
  }
  EXPECT_FALSE(planner.wants_trace());
  EXPECT_EQ(planner.graph()->operators[0].seconds, 2.0);
  EXPECT_EQ(planner.graph()->step_seconds, 20.0);
  planner.surprised();
  EXPECT_TRUE(planner.wants_trace());
}

}  // namespace
}  // namespace remat::test

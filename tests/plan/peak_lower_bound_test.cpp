#include <remat/planner.h>

#include <gtest/gtest.h>

#include <remat/budget.h>
#include <remat/error.h>

#include "plan/simulate.h"
#include "random_graph.h"
#include "sample_graph.h"
#include "support/actions.h"

namespace remat::test {
namespace {

TEST(PeakLowerBound, NoPlanGoesBelowIt) {
  int reached = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(4 + static_cast<int>(seed % 8));
    const int64_t floor = floor_of(graph).peak_bytes;
    Simulator simulator(graph);
    std::mt19937 random(seed);
    for (int i = 0; i < 300; ++i) {
      const int64_t peak = simulator.run(random_actions(graph, random)).peak_bytes;
      ASSERT_GE(peak, floor) << "seed " << seed;
      reached += peak == floor ? 1 : 0;
    }
  }
  EXPECT_GT(reached, 0) << "a bound that nothing reaches proves little";
}

TEST(PeakLowerBound, IsPlainsPeakWhereNothingCanBeDropped) {
  Graph graph = RandomGraph(3).make(20);
  for (GraphValue& value : graph.values) value.droppable = false;
  EXPECT_EQ(floor_of(graph).peak_bytes, make_plan(graph, INT64_MAX, "keep-all").predicted_peak_bytes);
}

TEST(PeakLowerBound, OfAnEmptyGraphIsItsBaseline) {
  Graph graph;
  graph.baseline_bytes = 7;
  EXPECT_EQ(floor_of(graph).peak_bytes, 7);
  EXPECT_EQ(to_text(floor_of(graph)), "7 B before the step");
}

TEST(PeakLowerBound, SaysWhatItIsMadeOfAndWho) {
  // relu's result and what its backward takes are there at once: 64 bytes, used again with 64 more.
  const Floor floor = floor_of(sample_graph());
  EXPECT_EQ(floor.parameter_bytes, 400);
  EXPECT_EQ(floor.gradient_bytes, 8);
  EXPECT_EQ(floor.peak_bytes, 464 + floor.activation_bytes());
  EXPECT_FALSE(floor.operator_name.empty());
  const Floor other{15 << 20, 4 << 20, 3 << 20, 12 << 20, "aten::mm", true};
  EXPECT_EQ(to_text(other),
            "4.00 MiB of parameters, 3.00 MiB of their gradients, 5.00 MiB else before the step (optimizer state, "
            "inputs), 3.00 MiB while aten::mm runs backward");
}

TEST(PeakLowerBound, NamesTheOperatorThatSetsIt) {
  using Kind = GraphEvent::Kind;
  Graph graph = chain_graph(5);
  graph.events.front().rise += 1 << 20;  // until the second operator has run
  EXPECT_EQ(floor_of(graph).operator_name, "aten::op1");
  EXPECT_FALSE(floor_of(graph).backward);
  for (GraphEvent& event : graph.events) {
    if (event.kind == Kind::kUse && event.index == 3) event.rise += 1 << 21;
  }
  EXPECT_EQ(floor_of(graph).operator_name, "aten::op2");
  EXPECT_TRUE(floor_of(graph).backward);
}

TEST(PeakLowerBound, RefusalsNameIt) {
  const Graph graph = chain_graph(30);
  const Floor floor = floor_of(graph);
  try {
    make_plan(graph, floor.peak_bytes - 1);
    FAIL() << "there is no such plan";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.lower_bound_bytes(), floor.peak_bytes);
    EXPECT_NE(std::string(error.what()).find(to_text(floor)), std::string::npos) << error.what();
  }
}

TEST(PeakLowerBound, AdviceGoesByWhatIsTooLarge) {
  Floor floor;
  floor.peak_bytes = 1000;
  floor.baseline_bytes = 600;
  EXPECT_EQ(advice(floor, 500), "use a smaller model, or an optimizer that holds less");
  EXPECT_EQ(advice(floor, INT64_MIN), advice(floor, 500));
  EXPECT_EQ(advice(floor, 800), "a batch of at most 50% of this one may fit");
  EXPECT_EQ(advice(floor, 1000), "use less work per step");
  EXPECT_EQ(advice(floor, 603), "use less work per step") << "a batch of 0 % is no advice";
}

}  // namespace
}  // namespace remat::test

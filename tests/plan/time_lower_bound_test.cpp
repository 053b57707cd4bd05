#include <remat/planner.h>

#include <cmath>

#include <gtest/gtest.h>

#include "brute_force.h"
#include "random_graph.h"
#include "sample_graph.h"

namespace remat::test {
namespace {

constexpr double kRounding = 1e-12;

TEST(TimeLowerBound, NoPlanTakesLess) {
  int plans_needed = 0;
  double bounds = 0, optima = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const bool policies = seed % 4 == 1;
    const Graph graph = RandomGraph(seed).with_policies(policies).make(4 + static_cast<int>(seed % 8));
    const BruteForce plans(graph);
    if (plans.choices() > BruteForce::kMostChoices) continue;
    const int64_t top = plain_peak(graph);
    for (int share = 0; share <= 100; share += 5) {
      const int64_t budget = graph.baseline_bytes + (top - graph.baseline_bytes) * share / 100;
      const double least = plans.least_seconds(budget), bound = seconds_bound(graph, budget);
      ASSERT_LE(bound, least + kRounding) << "seed " << seed << ", " << share << " %";
      if (!std::isfinite(least) || least == 0 || policies) continue;  // of what these cost it knows nothing
      ++plans_needed;
      bounds += bound;
      optima += least;
    }
  }
  EXPECT_GT(plans_needed, 500);
  EXPECT_GT(bounds, 0.35 * optima) << "a bound far below everything proves little";
}

TEST(TimeLowerBound, OfAChainWithPackingIsNoMoreThanWithout) {
  const Graph graph = chain_graph(60);
  const int64_t top = plain_peak(graph);
  for (const int share : {90, 60, 30}) {
    const int64_t budget = top * share / 100;
    const double with = seconds_bound(graph, budget), without = seconds_bound(graph, budget, {.pack = false});
    EXPECT_LE(with, without);
    EXPECT_GT(without, 0);
    EXPECT_LE(without, make_plan(graph, budget, "auto", {.pack = false}).predicted_seconds + kRounding);
  }
}

TEST(TimeLowerBound, OfProducersThatNobodyHoldsIsPartOfThePrice) {
  // relu's input is not held: who drops relu's result pays for addmm too.
  Graph graph = chain_graph(2);
  graph.values[1].droppable = false;
  graph.values[1].packed_bytes = graph.values[2].packed_bytes = 0;
  std::erase_if(graph.events,
                [](const GraphEvent& e) { return e.kind != GraphEvent::Kind::kOperator && e.index == 1; });
  for (GraphEvent& event : graph.events) {
    if (event.kind == GraphEvent::Kind::kIdle) event.rise = 1 << 20;  // the peak, while the value is idle
  }
  ASSERT_EQ(graph.problem(), "");
  const int64_t top = plain_peak(graph);
  const double both = graph.operators[0].replay_seconds + graph.operators[1].replay_seconds;
  EXPECT_NEAR(seconds_bound(graph, top - 128), both * 128 / static_cast<double>(graph.values[2].bytes), 1e-3 * both);
}

TEST(TimeLowerBound, IsNothingWherePlainFitsAndInfiniteBelowTheFloor) {
  const Graph graph = chain_graph(30);
  EXPECT_EQ(seconds_bound(graph, plain_peak(graph)), 0);
  EXPECT_EQ(seconds_bound(graph, floor_of(graph).peak_bytes - 1), INFINITY);
  EXPECT_TRUE(std::isfinite(seconds_bound(graph, floor_of(graph).peak_bytes)));
  EXPECT_EQ(seconds_bound(Graph(), 0), 0);
}

}  // namespace
}  // namespace remat::test

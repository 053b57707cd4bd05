#include <algorithm>

#include <gtest/gtest.h>

#include "brute_force.h"
#include "plan/starts.h"
#include "random_graph.h"
#include "step_builder.h"

namespace remat::test {
namespace {

using planners::Actions;
using planners::Frontier;

Frontier families_of(const Graph& graph, PlannerOptions options = {}) {
  Frontier frontier;
  planners::offer_families(frontier, graph, options);
  return frontier;
}

constexpr double kGate = 100, kCheap = 1;

/// As an LSTM makes them: of each step a product is half of the bytes and nearly all of the time, what is made of it
/// and of the step before the other half.
Graph recurrence(int steps) {
  StepBuilder builder;
  int32_t cell = 0, hidden = 0;
  for (int i = 0; i < steps; ++i) {
    const int32_t gates = builder.saved({hidden}, 3000, kGate);
    builder.named("aten::addmm");
    cell = builder.saved({gates, cell}, 1000, kCheap);
    builder.named("aten::add");
    const int32_t squashed = builder.saved({cell}, 1000, kCheap);
    builder.named("aten::tanh");
    hidden = builder.saved({gates, squashed}, 1000, kCheap);
    builder.named("aten::mul");
  }
  return builder.graph();
}

TEST(Families, GiveUpTheCheapHalfOfEveryStepOfARecurrence) {
  const int steps = 100;
  const Graph graph = recurrence(steps);
  const Frontier frontier = families_of(graph);
  // What must be there beside the gates: some cell states to replay the others from, and those replayed.
  const Frontier::Point* const found = frontier.within(graph.baseline_bytes + 6000 * steps * 60 / 100);
  ASSERT_NE(found, nullptr);
  EXPECT_LE(found->seconds, 3 * kCheap * steps + 2 * kGate);
}

TEST(Families, AreWhatAutoBeginsFrom) {
  const Graph graph = recurrence(600);  // too long for single values
  const int64_t budget = graph.baseline_bytes + int64_t{6000} * 600 * 60 / 100;
  EXPECT_LE(make_plan(graph, budget).predicted_seconds, families_of(graph).within(budget)->seconds);
}

TEST(Families, AimAtOneLimit) {
  const Graph graph = recurrence(40);
  const int64_t limit = graph.baseline_bytes + int64_t{6000} * 40 * 45 / 100;
  Frontier frontier;
  planners::offer_families(frontier, graph, {}, limit);
  ASSERT_NE(frontier.within(limit), nullptr);
  EXPECT_LE(frontier.within(limit)->seconds, 1.02 * families_of(graph).within(limit)->seconds);
}

TEST(Families, SpareSomeOfAChainToReplayFrom) {
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(64, {1000, 1}));
  const Frontier frontier = families_of(graph);
  const Frontier::Point* const found = frontier.within(graph.baseline_bytes + 25'000);
  ASSERT_NE(found, nullptr);
  EXPECT_LE(found->seconds, 64);
}

TEST(Families, OfferWhatTheSimulatorSays) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(3 + static_cast<int>(seed));
    const Frontier frontier = families_of(graph);
    for (int64_t limit = frontier.lowest_peak(); limit <= plain_peak(graph); limit += 100) {
      const Frontier::Point& point = *frontier.within(limit);
      const Prediction prediction = predict(graph, point.actions);
      EXPECT_LE(prediction.peak_bytes, limit);
      EXPECT_EQ(prediction.seconds, point.seconds);
      Plan plan{.planner = "families", .graph_fingerprint = graph.fingerprint(), .actions = point.actions};
      EXPECT_EQ(plan.problem(graph), "");
    }
  }
}

TEST(Families, PackOnlyWherePlansMay) {
  StepBuilder builder;
  for (int i = 0; i < 10; ++i) builder.saved({0}, 1000, 10, 10);
  const Graph graph = builder.graph();
  const auto packs = [&](PlannerOptions options) {
    const Actions actions = families_of(graph, options).within(graph.baseline_bytes + 5000)->actions;
    return std::count(actions.begin(), actions.end(), Action::kPack);
  };
  EXPECT_GT(packs({}), 0);
  EXPECT_EQ(packs({.pack = false}), 0);
}

TEST(Families, AreTheSameTwice) {
  const Graph graph = recurrence(30);
  const int64_t limit = plain_peak(graph) / 2;
  EXPECT_EQ(families_of(graph).within(limit)->actions, families_of(graph).within(limit)->actions);
}

}  // namespace
}  // namespace remat::test

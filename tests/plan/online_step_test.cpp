#include "plan/online_step.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "brute_force.h"
#include "random_graph.h"
#include "step_builder.h"

namespace remat::test {
namespace {

using planners::Actions;
using planners::OnlineStep;

TEST(OnlineStep, EvictsNothingWithoutNeed) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Graph graph = RandomGraph(seed).make(30);
    OnlineStep step(graph, {});
    EXPECT_EQ(step.run(plain_peak(graph)), Actions(graph.values.size(), Action::kKeep));
    EXPECT_NE(step.run(plain_peak(graph) - 1), Actions(graph.values.size(), Action::kKeep));
  }
}

TEST(OnlineStep, EvictsTheCheapestPerByteFirst) {
  const Graph graph = plain_chain({{1000, 4}, {1000, 1}, {1000, 4}, {3000, 2}, {1000, 4}, {1000, 4}});
  OnlineStep step(graph, {});
  // 2 seconds for 3000 bytes are the lowest price, but that value is made late.
  EXPECT_EQ(step.run(7999), (Actions{Action::kKeep, Action::kKeep, Action::kKeep, Action::kKeep, Action::kRecompute,
                                     Action::kKeep, Action::kKeep}));
  EXPECT_EQ(step.run(5999), (Actions{Action::kKeep, Action::kKeep, Action::kRecompute, Action::kKeep,
                                     Action::kRecompute, Action::kKeep, Action::kKeep}));
}

TEST(OnlineStep, WhatReplaysRunAnywayIsFree) {
  StepBuilder builder;
  const int32_t shared = builder.lost({0}, 15);
  const int32_t large = builder.saved({shared}, 100'000, 1);
  const int32_t small = builder.saved({shared}, 1000, 1);
  const int32_t other = builder.saved({0}, 1000, 5);
  builder.saved({0}, 1000, 50);
  const Graph graph = builder.graph();
  // The large value costs least per byte. With it gone, `shared` is made again in any case.
  const Actions actions = OnlineStep(graph, {}).run(2000);
  EXPECT_EQ(actions[static_cast<size_t>(large)], Action::kRecompute);
  EXPECT_EQ(actions[static_cast<size_t>(small)], Action::kRecompute);
  EXPECT_EQ(actions[static_cast<size_t>(other)], Action::kKeep);
}

TEST(OnlineStep, PacksWhereThatIsCheaperAndAllowed) {
  StepBuilder builder;
  const int32_t mask = builder.saved({0}, 1 << 20, 1, 1 << 17);
  builder.saved({mask}, 1 << 20, 1);
  builder.saved({mask}, 1 << 20, 1);
  const Graph graph = builder.graph();
  const int64_t limit = 5 << 19;
  EXPECT_EQ(OnlineStep(graph, {}).run(limit)[static_cast<size_t>(mask)], Action::kPack);
  EXPECT_EQ(OnlineStep(graph, {.pack = false}).run(limit)[static_cast<size_t>(mask)], Action::kRecompute);
}

TEST(OnlineStep, CountsHowOftenWhatDoesNotStayIsMade) {
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(30, {1000, 1}));
  const Actions actions = OnlineStep(graph, {}).run(5000);
  EXPECT_GT(std::count(actions.begin(), actions.end(), Action::kRecompute), 3);
  EXPECT_GT(std::count(actions.begin(), actions.end(), Action::recompute(2)), 3);
  EXPECT_GT(std::count_if(actions.begin(), actions.end(), [](Action a) { return a.held_from > 2; }), 3);
  EXPECT_EQ(std::count(actions.begin(), actions.end(), Action::kRecomputeEachTime), 0);
}

TEST(OnlineStep, StopsEvictingWhereItReplaysWithoutEnd) {
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(500, {1000, 1}));
  OnlineStep step(graph, {});
  step.run(500 * 400);
  EXPECT_FALSE(step.has_stopped());
  step.run(3000);
  EXPECT_TRUE(step.has_stopped());
  step.run(500 * 400);
  EXPECT_FALSE(step.has_stopped()) << "it is about the last run";
}

TEST(OnlineStep, GivesTheSameTwice) {
  const Graph graph = RandomGraph(5).make(40);
  OnlineStep step(graph, {});
  const Actions first = step.run(plain_peak(graph) * 7 / 10);
  step.run(plain_peak(graph) / 2);
  EXPECT_EQ(step.run(plain_peak(graph) * 7 / 10), first);
}

TEST(OnlineStep, FindsTheSmallestLimitThatItKeeps) {
  int below_plans = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(20);
    const int64_t smallest = smallest_online_budget(graph);
    OnlineStep step(graph, {});
    step.run(smallest);
    EXPECT_LE(step.peak_bytes(), smallest) << seed;
    EXPECT_LE(smallest, plain_peak(graph)) << seed;
    below_plans += smallest < floor_of(graph).peak_bytes ? 1 : 0;
  }
  EXPECT_GT(below_plans, 0) << "values that are used twice may be evicted in between";
}

TEST(OnlineStep, NeedsLessWhereValuesMayMove) {
  Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(60, {1 << 20, 0.01}));
  const int64_t alone = smallest_online_budget(graph);
  graph.tier = Tier{.costs = {}, .bytes = 1 << 30};
  const int64_t moving = smallest_online_budget(graph);
  EXPECT_LT(moving, alone);
  EXPECT_GE(moving, graph.baseline_bytes + (1 << 20)) << "one is there at a time";
  EXPECT_EQ(smallest_online_budget(graph, {.move = false}), alone);
  graph.tier->bytes = 1 << 20;
  EXPECT_EQ(smallest_online_budget(graph), alone) << "no room for all";
}

}  // namespace
}  // namespace remat::test

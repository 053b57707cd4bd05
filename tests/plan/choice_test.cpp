#include "plan/choice.h"

#include <gtest/gtest.h>

#include "brute_force.h"
#include "step_builder.h"

namespace remat::test {
namespace {

/// Eight values in a row, of as many bytes as asked for.
Graph chain(int64_t bytes) {
  std::vector<std::pair<int64_t, double>> values(8, {bytes, 1.0});
  return plain_chain(values);
}

/// Plans for every 20th of plain's activation peak.
planners::ParetoFront curve(const Graph& graph) {
  std::vector<int64_t> limits;
  for (int percent = 95; percent > 0; percent -= 5) {
    limits.push_back(graph.baseline_bytes + (plain_peak(graph) - graph.baseline_bytes) * percent / 100);
  }
  return planners::plans_of_curve(graph, limits, {});
}

TEST(Choice, TheFastestThatFitsOfWhatWasFoundForAnotherSize) {
  const Graph small = chain(100), large = chain(200);
  const planners::ParetoFront found = curve(small);
  const int64_t plain = Simulator(large).run(planners::Actions(large.values.size(), Action::kKeep)).peak_bytes;
  const planners::ParetoFront own = curve(large);
  for (const int percent : {100, 80, 60, 50}) {
    const int64_t limit = plain * percent / 100;
    planners::Choice choice(large, limit, {});
    choice.offer(found);
    ASSERT_TRUE(choice.fits()) << percent;
    EXPECT_LE(choice.run().peak_bytes, limit);
    EXPECT_EQ(Simulator(large).run(choice.best()).seconds, choice.run().seconds);
    EXPECT_EQ(choice.run().seconds, own.within(limit)->seconds) << percent;  // the same but for the scale
  }
}

TEST(Choice, NothingFits) {
  const Graph graph = chain(100);
  planners::Choice choice(graph, 50, {});
  choice.offer(curve(graph));
  EXPECT_FALSE(choice.fits());
}

TEST(Choice, WhatIsAwayStaysAway) {
  const Graph graph = chain(100);
  std::vector<bool> evicted(graph.values.size(), false);
  evicted[1] = evicted[2] = true;
  planners::Choice choice(graph, INT64_MAX, evicted);
  choice.offer(planners::Actions(graph.values.size(), Action::kKeep));
  ASSERT_TRUE(choice.fits());
  EXPECT_EQ(choice.best()[1], Action::kRecompute);
  EXPECT_EQ(choice.best()[2], Action::kRecompute);
  EXPECT_EQ(choice.best()[3], Action::kKeep);
  EXPECT_GT(choice.run().seconds, 0);
}

TEST(Choice, PacksOnlyWhatCanBePacked) {
  Graph graph = chain(100);
  planners::Actions actions(graph.values.size(), Action::kPack);
  actions[0] = Action::kKeep;
  graph.values[1].packed_bytes = 10;
  planners::Choice choice(graph, INT64_MAX, {});
  choice.offer(actions);
  EXPECT_EQ(choice.best()[1], Action::kPack);
  EXPECT_EQ(choice.best()[2], Action::kKeep);
}

TEST(Choice, LeavesOutActionsOfAnotherNumberOfValues) {
  const Graph graph = chain(100);
  planners::Choice choice(graph, INT64_MAX, {});
  choice.offer(planners::Actions(3, Action::kKeep));
  EXPECT_FALSE(choice.fits());
}

}  // namespace
}  // namespace remat::test

#include <algorithm>

#include <gtest/gtest.h>

#include <remat/error.h>
#include <remat/planner.h>

#include "step_builder.h"

namespace remat::test {
namespace {

TEST(Segments, TakeTwiceTheRootOfAChainAndOneForwardPass) {
  for (const int64_t root : {5, 10, 16}) {
    const auto length = static_cast<size_t>(root * root);
    const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(length, {1000, 1}));
    const Plan plan = make_plan(graph, 2000 * root + 1000, "segments");
    EXPECT_LE(plan.predicted_seconds, static_cast<double>(length));
    EXPECT_EQ(std::count(plan.actions.begin(), plan.actions.end(), Action::kRecomputeEachTime), 0);
  }
}

TEST(Segments, AreCutWhereLittleCrosses) {
  // Blocks of a small value and three large ones.
  StepBuilder step;
  int32_t last = 0;
  for (int block = 0; block < 6; ++block) {
    last = step.saved({last}, 10);
    const int32_t large = step.saved({last}, 1000), larger = step.saved({large, last}, 1000);
    last = step.saved({larger, large}, 1000);
  }
  const Graph graph = step.graph();
  const Plan plan = make_plan(graph, 4100, "segments");
  for (const size_t small : {5, 9}) {
    EXPECT_EQ(plan.actions[small], Action::kKeep);
    for (size_t large = small - 3; large < small; ++large) EXPECT_EQ(plan.actions[large], Action::kRecompute);
  }
}

TEST(Segments, KeepTheLastOnesThatFit) {
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(20, {1000, 1}));
  const Plan plan = make_plan(graph, 19'000, "segments");
  EXPECT_EQ(plan.predicted_seconds, 1);
  EXPECT_EQ(plan.actions.back(), Action::kKeep);
}

}  // namespace
}  // namespace remat::test

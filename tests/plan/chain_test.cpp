#include "plan/chain.h"

#include <gtest/gtest.h>

#include "step_builder.h"
#include "support/actions.h"

namespace remat::test {
namespace {

using namespace planners;
using Places = std::vector<int32_t>;

TEST(Cuts, AreAsWideAsWhatCrossesAndIsKept) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 10);
  const int32_t b = step.saved({a}, 200);
  const int32_t c = step.saved({a, b}, 3000);
  step.saved({c}, 40'000);
  const Cuts cuts(step.graph());
  EXPECT_EQ(cuts.width(0), 0);
  EXPECT_EQ(cuts.width(1), 10);
  EXPECT_EQ(cuts.width(2), 210);
  EXPECT_EQ(cuts.width(3), 3000);
  EXPECT_EQ(cuts.width(4), 0);
  EXPECT_EQ(cuts.divide(4, Cuts::Measure::kSeconds), (Places{0, 1, 2, 3, 4}));
  EXPECT_EQ(cuts.divide(2, Cuts::Measure::kSeconds), (Places{0, 1, 4}));
  EXPECT_EQ(cuts.divide(1, Cuts::Measure::kSeconds), (Places{0, 4}));
  EXPECT_EQ(cuts.divide(2, Cuts::Measure::kBytes), (Places{0, 4}));  // all bytes are at the end
}

TEST(Cuts, AreNotWhereSomethingCrossesThatCannotBeKept) {
  StepBuilder step;
  const int32_t mask = step.lost({0}, 3);
  const int32_t a = step.saved({0, mask}, 10);
  const int32_t gone = step.lost({a});
  const int32_t b = step.saved({gone}, 10);
  step.saved({b, mask}, 10);
  const Cuts cuts(step.graph());
  EXPECT_EQ(cuts.divide(5, Cuts::Measure::kSeconds), (Places{0, 1, 2, 4, 5}));  // not behind `gone`
  // A mask is no obstacle: it is made again.
  EXPECT_EQ(cuts.lost_seconds(2), 3);
  EXPECT_EQ(cuts.lost_seconds(4), 3);
  EXPECT_EQ(cuts.width(2), 10 + 3 * 30.0 / 7);
}

TEST(Cuts, AreNotThereEvenIfItIsNarrow) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 10);
  const int32_t b = step.saved({step.lost({a})}, 10);
  step.saved({b}, 10);
  const Cuts cuts(step.graph());
  EXPECT_EQ(cuts.width(2), 0);
  EXPECT_EQ(cuts.divide(2, Cuts::Measure::kSeconds), (Places{0, 1, 4}));
}

TEST(Chain, KnowsWhatReplaysOfItsBlocksRun) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 10, 1);
  const int32_t gone = step.lost({a}, 2);
  const int32_t b = step.saved({gone}, 10, 4);
  step.lost({b}, 8);  // for nothing
  const int32_t c = step.saved({b}, 10, 16, 2);
  step.saved({c}, 10, 32);
  const Graph graph = step.graph();
  const Chain chain(graph, {0, 3, 6});
  EXPECT_EQ(chain.blocks(), 2);
  EXPECT_EQ(chain.seconds, (std::vector<double>{7, 48}));
  EXPECT_EQ(chain.tail_seconds, (std::vector<double>{1, 48}));  // b crosses
  std::vector<bool> packed(graph.values.size(), false);
  packed[static_cast<size_t>(c)] = true;
  EXPECT_EQ(Chain(graph, {0, 3, 6}, packed).seconds, (std::vector<double>{7, 32}));
  EXPECT_EQ(Chain(graph, {0, 3, 6}, packed).values.size(), 3u);
}

TEST(Chain, HoldsValuesFromTheRunsOfTheSchedule) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 10);
  const int32_t b = step.saved({a}, 100);
  const int32_t c = step.saved({b, a}, 1000);
  step.saved({c}, 10'000);
  const Graph graph = step.graph();
  const Chain chain(graph, {0, 1, 2, 3, 4});
  ChainSchedule schedule(4);
  schedule.inside = {3, 2, 1, 0};
  EXPECT_EQ(letters(actions_of(graph, chain, schedule)), "k321k");
  schedule.state[1] = 0;  // a and b cross there
  EXPECT_EQ(letters(actions_of(graph, chain, schedule)), "kkk1k");
}

}  // namespace
}  // namespace remat::test

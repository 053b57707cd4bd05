#include "plan/candidates.h"

#include <gtest/gtest.h>

#include "brute_force.h"
#include "step_builder.h"

namespace remat::test {
namespace {

using planners::Actions;
using planners::Candidates;

TEST(Candidates, GiveTheFastestThatFitsOrTheLowest) {
  const Graph graph = plain_chain({{1000, 1}, {1000, 2}, {1000, 4}, {1000, 8}});
  const Actions keep(5, Action::kKeep);
  Actions slow = keep, fast = keep, low = keep;
  slow[3] = Action::kRecompute;
  fast[2] = Action::kRecompute;
  low[1] = low[2] = low[3] = Action::kRecomputeEachTime;
  for (const auto& [budget, best] : {std::pair{int64_t{4000}, keep}, {3999, fast}, {2500, low}, {100, low}}) {
    Candidates candidates(graph, budget, {});
    EXPECT_EQ(candidates.plain_peak(), 4000);
    EXPECT_EQ(candidates.best(), keep);
    EXPECT_EQ(candidates.offer(slow), budget >= 3000);
    candidates.offer(low);
    candidates.offer(fast);
    EXPECT_EQ(candidates.best(), best) << budget;
  }
}

TEST(Candidates, ArePackedWhereThatIsCheaper) {
  StepBuilder step;
  const int32_t cheap = step.saved({0}, 1 << 20, 1e-6, 1 << 17);
  const int32_t made_of_lost = step.saved({step.lost({cheap}, 1e-2)}, 1 << 20, 1e-6, 1 << 17);
  step.saved({made_of_lost}, 1 << 20, 1e-6);
  const Graph graph = step.graph();
  const auto packable = planners::cheaper_packed(graph);
  EXPECT_FALSE(packable[static_cast<size_t>(cheap)]);
  EXPECT_TRUE(packable[static_cast<size_t>(made_of_lost)]);
  Actions actions(graph.values.size(), Action::kKeep);
  actions[static_cast<size_t>(made_of_lost)] = Action::kRecompute;
  const int64_t budget = 5 << 19;
  Candidates with(graph, budget, {}), without(graph, budget, {.pack = false});
  EXPECT_EQ(with.offer(actions), without.offer(actions));
  EXPECT_EQ(without.best(), actions);
  actions[static_cast<size_t>(made_of_lost)] = Action::kPack;
  EXPECT_EQ(with.best(), actions);
}

TEST(Candidates, KnowWhatItTakesToMakeAValueAgain) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 1, 1);
  const int32_t b = step.lost({a}, 2);
  const int32_t c = step.lost({b}, 4);
  const int32_t d = step.saved({b, c}, 1, 8);
  const auto seconds = planners::recompute_seconds(step.graph());
  EXPECT_EQ(seconds, (std::vector<double>{0, 1, 2, 6, 15}));  // b counts twice for d; 15 is all there is
  EXPECT_EQ(planners::saved_values(step.graph()), (std::vector<bool>{false, true, false, false, true}));
  EXPECT_EQ(d, 4);
}

TEST(Candidates, AreExhaustedByReplaysNotByTime) {
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(3000, {1000, 1}));
  Candidates candidates(graph, 1, {});
  Actions again(graph.values.size(), Action::kKeep);
  for (size_t v = 1; v < again.size(); ++v) again[v] = Action::kRecomputeEachTime;
  int offers = 0;
  for (; !candidates.exhausted(); ++offers) candidates.offer(again);
  EXPECT_EQ(offers, 6);  // 4.5 million replays each
}

}  // namespace
}  // namespace remat::test

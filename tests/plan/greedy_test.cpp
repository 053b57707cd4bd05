#include "plan/greedy.h"

#include <gtest/gtest.h>

#include "brute_force.h"
#include "plan/simulate.h"
#include "sample_graph.h"

namespace remat::test {
namespace {

TEST(Greedy, EndsWhenItHasReplayedEnough) {
  const Graph graph = chain_graph(200);
  const int64_t limit = plain_peak(graph) * 3 / 10;
  const auto descend = [&](int64_t most_replays) {
    Simulator simulator(graph);
    planners::Actions actions(graph.values.size(), Action::kKeep);
    return planners::Greedy(graph, simulator, {}).descend(actions, limit, most_replays).peak_bytes;
  };
  EXPECT_LE(descend(INT64_MAX), limit);
  EXPECT_GT(descend(1), limit);
  EXPECT_LT(descend(1), plain_peak(graph)) << "plain replays nothing: one change at least";
}

}  // namespace
}  // namespace remat::test

#include <remat/checkpoints.h>

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "step_builder.h"

namespace remat {
namespace {

Graph chain(size_t length) { return test::plain_chain(std::vector<std::pair<int64_t, double>>(length, {1000, 1})); }

int64_t peak_of(const Graph& graph, const std::vector<Action>& actions) { return predict(graph, actions).peak_bytes; }

TEST(Checkpoints, AreEvenlySpacedAndNothingElseIsKeptBeforeTheLast) {
  const Graph graph = chain(12);
  const Checkpoints checkpoints = place_checkpoints(graph, 3);
  EXPECT_EQ(checkpoints.places, (std::vector<int32_t>{3, 6, 9}));
  // Values are numbered from the leaf's 0: those that cross are the results of operators 2, 5 and 8.
  for (size_t v = 1; v < graph.values.size(); ++v) {
    const bool kept = v == 3 || v == 6 || v == 9 || v > 9;
    EXPECT_EQ(checkpoints.actions[v] == Action::kKeep, kept) << v;
  }
  EXPECT_EQ(predict(graph, checkpoints.actions).seconds, 6);
}

TEST(Checkpoints, AreAtMostAsManyAsThereArePlaces) {
  const Graph graph = chain(5);
  EXPECT_EQ(most_checkpoints(graph), 4);
  EXPECT_EQ(place_checkpoints(graph, 4).places.size(), 4u);
  EXPECT_EQ(place_checkpoints(graph, 1000).places.size(), 4u);
  EXPECT_TRUE(place_checkpoints(graph, 0).places.empty());
  EXPECT_EQ(most_checkpoints(Graph()), 0);
  EXPECT_TRUE(place_checkpoints(Graph(), 3).places.empty());
  EXPECT_TRUE(best_checkpoints(Graph()).places.empty());
}

// Chen et al. 2016: k segments of n / k values each take n / k + k of them, least for k = sqrt(n).
TEST(Checkpoints, TheBestNumberIsTheRootOfTheLength) {
  for (const size_t root : {5, 10, 20}) {
    const Graph graph = chain(root * root);
    const Checkpoints best = best_checkpoints(graph);
    EXPECT_NEAR(static_cast<double>(best.places.size()), static_cast<double>(root),
                1 + 0.2 * static_cast<double>(root));
    EXPECT_LE(peak_of(graph, best.actions), static_cast<int64_t>(2 * root + 2) * 1000);
    for (int64_t count = 1; count < 40; ++count) {
      EXPECT_LE(peak_of(graph, best.actions), peak_of(graph, place_checkpoints(graph, count).actions)) << count;
    }
  }
}

TEST(Checkpoints, RecomputingAllTakesTheSquareOfTheLengthAndNoMemoryOfIt) {
  const Graph shorter = chain(10), longer = chain(40);
  const auto seconds = [](const Graph& graph) { return predict(graph, recompute_all(graph)).seconds; };
  EXPECT_EQ(seconds(shorter), 10 * 11 / 2);
  EXPECT_EQ(seconds(longer), 40 * 41 / 2);
  EXPECT_EQ(peak_of(shorter, recompute_all(shorter)), peak_of(longer, recompute_all(longer)));
}

}  // namespace
}  // namespace remat

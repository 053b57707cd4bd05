#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include <remat/error.h>
#include <remat/planner.h>

#include "brute_force.h"
#include "step_builder.h"

namespace remat::test {
namespace {

/// Values of any size in a row, operators of any cost.
Graph uneven_chain(uint32_t seed, int length) {
  std::mt19937 random(seed);
  std::vector<std::pair<int64_t, double>> values;
  for (int i = 1; i < length; ++i)
    values.emplace_back(100 + random() % 900, 0.01 * static_cast<double>(1 + random() % 99));
  values.emplace_back(1, 0.01);  // the loss
  return plain_chain(values);
}

TEST(Rotor, IsNearTheOptimumOfSmallChains) {
  int plans = 0, found = 0, optimal = 0;
  double planned = 0, least = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const Graph graph = uneven_chain(seed, 6);
    const BruteForce all(graph);
    for (int part = 0; part <= 10; ++part) {
      const int64_t budget = all.lowest_peak() + (plain_peak(graph) - all.lowest_peak()) * part / 10;
      ++plans;
      try {
        const double seconds = make_plan(graph, budget, "rotor").predicted_seconds;
        ++found;
        planned += seconds;
        least += all.least_seconds(budget);
        optimal += seconds <= all.least_seconds(budget) + 1e-9 ? 1 : 0;
      } catch (const BudgetError&) {
      }
    }
  }
  EXPECT_GE(found, plans * 95 / 100);
  EXPECT_GE(optimal, found * 90 / 100) << optimal << " of " << found;
  EXPECT_LE(planned, 1.1 * least) << planned / least;
}

TEST(Rotor, BeatsEqualStepsOnUnevenChains) {
  double rotor = 0, revolve = 0, segments = 0;
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const Graph graph = uneven_chain(seed, 60);
    const int64_t budget = plain_peak(graph) * 4 / 10;
    rotor += make_plan(graph, budget, "rotor").predicted_seconds;
    revolve += make_plan(graph, budget, "revolve").predicted_seconds;
    segments += make_plan(graph, budget, "segments").predicted_seconds;
  }
  EXPECT_LT(rotor, 0.95 * revolve);
  EXPECT_LT(rotor, 0.95 * segments);
}

TEST(Rotor, KnowsWhatPackingSaves) {
  // Masks that are costly to make and cheap to pack, among values that are as costly: with packing they cost nothing.
  StepBuilder step;
  int32_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const int32_t mask = step.saved({last}, 800'000, 0.1, 100'000);
    last = step.saved({last, mask}, 800'000, 0.1);
  }
  const Graph graph = step.graph();
  const int64_t budget = plain_peak(graph) * 57 / 100;
  const Plan packed = make_plan(graph, budget, "rotor"), unpacked = make_plan(graph, budget, "rotor", {.pack = false});
  EXPECT_LT(packed.predicted_seconds, 0.01);
  EXPECT_GT(unpacked.predicted_seconds, 1);
}

}  // namespace
}  // namespace remat::test

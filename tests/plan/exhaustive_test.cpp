// Branch and bound against brute force.
#include "plan/exhaustive.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "brute_force.h"
#include "random_graph.h"
#include "step_builder.h"

namespace remat::test {
namespace {

using planners::Exhaustive;
using planners::ParetoFront;

constexpr int64_t kEnough = 2'000'000'000;

ParetoFront front_of_keeping(const Graph& graph) {
  ParetoFront front;
  const std::vector<Action> keep(graph.values.size(), Action::kKeep);
  front.offer(Simulator(graph).run(keep), keep);
  return front;
}

double fastest_within(const ParetoFront& front, int64_t limit) {
  const ParetoFront::Point* const found = front.within(limit);
  return found != nullptr ? found->seconds : INFINITY;
}

TEST(Exhaustive, FindsWhatBruteForceFinds) {
  int compared = 0, faster = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomGraph random(seed);
    const Graph graph = seed % 2 == 0 ? random.make(8) : random.with_policies().make(8);
    const BruteForce all(graph);
    if (all.choices() > BruteForce::kMostChoices || all.choices() == 0) continue;
    for (int part = 0; part <= 8; ++part) {
      const int64_t limit = all.lowest_peak() + (plain_peak(graph) - all.lowest_peak()) * part / 8;
      ParetoFront front = front_of_keeping(graph);
      ASSERT_TRUE(Exhaustive(graph, {}, front).run(limit, kEnough)) << seed;
      const double found = fastest_within(front, limit), least = all.least_seconds(limit);
      // Brute force tries no time to hold beyond the third, so that this may be faster.
      EXPECT_LE(found, least + 1e-9) << seed << " " << part;
      faster += found < least - 1e-9 ? 1 : 0;
      ++compared;
    }
    ParetoFront front = front_of_keeping(graph);
    ASSERT_TRUE(Exhaustive(graph, {}, front).run(all.lowest_peak() - 1, kEnough)) << seed;
    EXPECT_EQ(front.within(all.lowest_peak() - 1), nullptr) << seed;
  }
  EXPECT_GT(compared, 900);
  EXPECT_LE(faster, compared / 100);
}

TEST(Exhaustive, OffersWhatTheSimulatorSaysOfIt) {
  const Graph graph = RandomGraph(7).make(12);
  const int64_t limit = (plain_peak(graph) + floor_of(graph).peak_bytes) / 2;
  ParetoFront front = front_of_keeping(graph);
  Exhaustive(graph, {}, front).run(limit, kEnough);
  for (const auto& [peak, point] : front.points()) {
    const Simulation run = Simulator(graph).run(point.actions);
    EXPECT_EQ(run.peak_bytes, peak);
    EXPECT_NEAR(run.seconds, point.seconds, 1e-9);
  }
}

TEST(Exhaustive, DoesNotPackWhereThatIsNotWanted) {
  int packed = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Graph graph = RandomGraph(seed).make(8);
    for (const bool pack : {true, false}) {
      ParetoFront front = front_of_keeping(graph);
      Exhaustive(graph, {.pack = pack}, front).run((plain_peak(graph) + floor_of(graph).peak_bytes) / 2, kEnough);
      for (const auto& [peak, point] : front.points()) {
        for (const Action action : point.actions) {
          EXPECT_TRUE(pack || action != Action::kPack);
          packed += action == Action::kPack ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(packed, 0);
}

TEST(Exhaustive, GivesUpWhenItsWorkIsDone) {
  const Graph graph = RandomGraph(3).make(60);
  const int64_t limit = (plain_peak(graph) + 3 * floor_of(graph).peak_bytes) / 4;
  ParetoFront front = front_of_keeping(graph);
  EXPECT_FALSE(Exhaustive(graph, {}, front).run(limit, 1'000'000));
}

// Values that are kept are decided without a simulation: their number alone may not take long, or much of the stack.
TEST(Exhaustive, GivesUpLargeGraphsAtOnce) {
  StepBuilder step;
  int32_t value = 0;
  for (int i = 0; i < 200'000; ++i) value = step.saved({value}, 1000, 1e-3);
  const Graph graph = step.graph();
  ParetoFront front = front_of_keeping(graph);
  EXPECT_FALSE(Exhaustive(graph, {}, front).run(plain_peak(graph) / 2, kEnough));
}

}  // namespace
}  // namespace remat::test

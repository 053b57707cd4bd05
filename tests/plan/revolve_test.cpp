#include "plan/revolve.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "brute_force.h"
#include "step_builder.h"

namespace remat::test {
namespace {

/// The fewest runs of steps beyond the backward pass's own, by trying every place for the next checkpoint.
int64_t fewest_advances(int64_t length, int64_t slots) {
  static std::map<std::pair<int64_t, int64_t>, int64_t> known;
  if (length == 1) return 0;
  if (slots == 1) return length * (length - 1) / 2;
  const auto [entry, unknown] = known.try_emplace({length, slots}, INT64_MAX);
  if (!unknown) return entry->second;
  int64_t fewest = INT64_MAX;
  for (int64_t first = 1; first < length; ++first) {
    fewest = std::min(fewest, first + fewest_advances(first, slots) + fewest_advances(length - first, slots - 1));
  }
  return known[{length, slots}] = fewest;
}

TEST(Revolve, RunsAsFewStepsAsAnySchedule) {
  for (int32_t length = 1; length <= 60; ++length) {
    for (int64_t slots = 1; slots <= 12; ++slots) {
      const planners::ChainSchedule schedule = planners::revolve_schedule(length, slots);
      const int64_t runs = std::accumulate(schedule.runs.begin(), schedule.runs.end(), int64_t{0});
      EXPECT_EQ(runs - length, fewest_advances(length, slots)) << length << " steps, " << slots << " slots";
      // The checkpoints of the forward pass, beside the beginning.
      EXPECT_LT(std::count(schedule.state.begin(), schedule.state.end(), 0), slots);
    }
  }
}

TEST(Revolve, WithOneCheckpointEachStepRunsAgainForAllLaterOnes) {
  const planners::ChainSchedule schedule = planners::revolve_schedule(4, 1);
  EXPECT_EQ(schedule.runs, (std::vector<int32_t>{4, 3, 2, 1}));
  EXPECT_EQ(schedule.inside, (std::vector<int32_t>{3, 2, 1, 0}));
  EXPECT_EQ(schedule.state, std::vector<int32_t>(4, planners::ChainSchedule::kNever));
}

TEST(Revolve, GoesBelowOneReplayPerOperator) {
  // Where each operator is replayed once at the most, about 2 * sqrt(100) values are needed.
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(100, {1000, 1}));
  EXPECT_THROW(make_plan(graph, 14'000, "segments"), BudgetError);
  for (const int64_t held : {14, 10}) {
    // One of them is what a replay is at; the beginning is a leaf.
    const Plan plan = make_plan(graph, 1000 * held, "revolve");
    const auto fewest = static_cast<double>(fewest_advances(100, held) - 99);
    EXPECT_GE(plan.predicted_seconds, 0.9 * fewest);
    EXPECT_LE(plan.predicted_seconds, 1.3 * fewest) << held;
  }
}

}  // namespace
}  // namespace remat::test

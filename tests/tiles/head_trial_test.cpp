// Whether a loss is made in tiles or whole, by what steps took.
#include <remat/head_trial.h>

#include <gtest/gtest.h>

namespace remat::test {
namespace {

constexpr int64_t kLogits = 100;

/// A training whose steps take so many seconds, and so many bytes at least in tiles.
struct Training {
  double in_tiles = 2, whole = 1;
  int64_t budget = 1000, least = 600;
  HeadTrial trial = {};
  int asked = 0;

  /// Says whether it was in tiles.
  bool step(int64_t logits_bytes = kLogits) {
    const bool tiles = trial.wants_tiles(logits_bytes);
    trial.note({tiles, logits_bytes, budget, tiles ? in_tiles : whole}, [this] {
      ++asked;
      return least;
    });
    return tiles;
  }
  int whole_of(int steps) {
    int count = 0;
    for (int i = 0; i < steps; ++i) count += step() ? 0 : 1;
    return count;
  }
};

TEST(HeadTrial, ComparesAndThenGoesTheShorterWay) {
  Training faster_whole, faster_tiles{.in_tiles = 1, .whole = 2};
  for (Training* each : {&faster_whole, &faster_tiles}) {
    EXPECT_EQ(each->whole_of(HeadTrial::kSteps), 0) << "tiles first: they fit";
    EXPECT_FALSE(each->trial.is_over());
    EXPECT_EQ(each->whole_of(HeadTrial::kSteps), HeadTrial::kSteps);
    EXPECT_TRUE(each->trial.is_over());
    EXPECT_EQ(each->asked, 1);
  }
  EXPECT_EQ(faster_whole.whole_of(10), 10);
  EXPECT_EQ(faster_tiles.whole_of(10), 0);
  EXPECT_EQ(faster_whole.trial.seconds_whole(), 1);
  EXPECT_EQ(faster_whole.trial.seconds_in_tiles(), 2);
}

TEST(HeadTrial, KeepsToTilesWhereWholeLogitsMayNotFit) {
  Training tight{.budget = 1000, .least = 601};
  EXPECT_EQ(tight.whole_of(100), 0);
  EXPECT_EQ(tight.asked, 1);
}

TEST(HeadTrial, DoesNotCompareTheFirstSteps) {
  Training training;
  training.in_tiles = 0.1;  // by a clock that stood still, say
  training.whole_of(HeadTrial::kWarmUp);
  training.in_tiles = 2;
  training.whole_of(HeadTrial::kSteps - HeadTrial::kWarmUp);
  EXPECT_EQ(training.trial.seconds_in_tiles(), 2);
  training.whole = 0.1;
  training.whole_of(HeadTrial::kWarmUp);
  training.whole = 3;
  training.whole_of(HeadTrial::kSteps - HeadTrial::kWarmUp);
  EXPECT_EQ(training.whole_of(3), 0);
}

TEST(HeadTrial, OtherSizesAndBudgetsBeginAnew) {
  Training training;
  training.whole_of(3 * HeadTrial::kSteps);
  ASSERT_FALSE(training.step());
  EXPECT_TRUE(training.step(2 * kLogits)) << "nothing is known of it";
  EXPECT_EQ(training.whole_of(HeadTrial::kSteps), 0);
  EXPECT_EQ(training.whole_of(1), 1);
  training.budget = 900;  // said by the step, and so a step later
  training.step();
  EXPECT_EQ(training.whole_of(50), 0);
}

}  // namespace
}  // namespace remat::test

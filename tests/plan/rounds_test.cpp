#include <remat/rounds.h>

#include <gtest/gtest.h>

namespace remat::test {
namespace {

RoundTimes times_of(const std::vector<std::vector<double>>& rounds) {
  RoundTimes times;
  for (const auto& round : rounds) times.add_round(round);
  return times;
}

/// How many steps of so many seconds a round has, and how many of them count.
std::pair<int, size_t> steps_of(double seconds) {
  int steps = 0;
  const auto round = time_round([&] {
    ++steps;
    return seconds;
  });
  return {steps, round.size()};
}

TEST(Rounds, HaveMoreOfShortSteps) {
  EXPECT_EQ(steps_of(3), std::pair(1, size_t{1}));
  EXPECT_EQ(steps_of(0.2), std::pair(3, size_t{2}));
  EXPECT_EQ(steps_of(0.1), std::pair(5, size_t{4}));
  EXPECT_EQ(steps_of(0.015), std::pair(5, size_t{4}));
  EXPECT_EQ(steps_of(0.006), std::pair(9, size_t{8}));
  EXPECT_EQ(steps_of(1e-5), std::pair(64, size_t{63}));
}

TEST(Rounds, TheLeastIsToldAndTheUsualRoundIsTheMedian) {
  const auto times = times_of({{0.05, 0.03}, {0.02, 0.09}, {0.08, 0.07}});
  EXPECT_EQ(times.least(), 0.02);
  EXPECT_EQ(times.usual(), 0.03);
  EXPECT_EQ(times.steps(), 6u);
  EXPECT_EQ(times_of({{0.5}, {0.7}}).usual(), 0.7);
}

TEST(Rounds, NoTimesAreNone) {
  const auto none = times_of({{}, {0, -1}});
  EXPECT_EQ(none.rounds(), 0u);
  EXPECT_EQ(none.least(), 0);
  EXPECT_EQ(none.usual(), 0);
  EXPECT_EQ(none.mean_over(1, 3), 0);
  const TimesRatio ratio = ratio_of(none, times_of({{0.5}}));
  EXPECT_EQ(ratio.told, 1);
}

TEST(Rounds, ASteadyMachineGivesOneRatio) {
  const auto ratio = ratio_of(times_of({{0.3, 0.3}, {0.3, 0.3}}), times_of({{0.1, 0.1}, {0.1, 0.1}}));
  EXPECT_NEAR(ratio.told, 3, 1e-9);
  EXPECT_NEAR(ratio.least, 3, 1e-9);
  EXPECT_NEAR(ratio.most, 3, 1e-9);
}

TEST(Rounds, OneOutlierChangesNothing) {
  const auto ratio = ratio_of(times_of({{0.3}, {4.75}, {0.3}, {0.3}}), times_of({{0.1}, {0.1}, {0.1}, {0.1}}));
  EXPECT_NEAR(ratio.most, 3, 1e-9);
  EXPECT_NEAR(ratio.least, 3, 1e-9);
}

TEST(Rounds, ThatDifferWidenTheRatio) {
  const auto ratio = ratio_of(times_of({{0.3}, {0.6}, {0.9}}), times_of({{0.1}, {0.2}, {0.5}}));
  EXPECT_NEAR(ratio.told, 3, 1e-9);
  EXPECT_NEAR(ratio.least, 1.5, 1e-9);
  EXPECT_NEAR(ratio.most, 6, 1e-9);
}

// Every other short step is disturbed. The long one cannot escape.
TEST(Rounds, AShortStepIsComparedAsIfItWereLong) {
  const std::vector<double> shorts = {0.02, 0.09, 0.02, 0.09, 0.02, 0.09};
  const auto ratio = ratio_of(times_of({{0.1}, {0.1}, {0.1}}), times_of({shorts, shorts, shorts}));
  EXPECT_NEAR(ratio.told, 5, 1e-9);
  EXPECT_NEAR(ratio.least, 0.1 / 0.055, 1e-9);
  EXPECT_NEAR(ratio.most, 5, 1e-9);
  const auto turned = ratio_of(times_of({shorts, shorts, shorts}), times_of({{0.1}, {0.1}, {0.1}}));
  EXPECT_NEAR(turned.told, 0.2, 1e-9);
  EXPECT_NEAR(turned.most, 0.55, 1e-9);
}

// One row of eleven was undisturbed in each round: of three long steps none would have been.
TEST(Rounds, ManyTriesAreNoAdvantage) {
  std::vector<double> shorts(10, 0.0101);
  shorts.resize(30, 0.05);
  const auto few = ratio_of(times_of({{0.1}, {0.1}, {0.1}}), times_of({shorts, shorts, shorts}));
  EXPECT_NEAR(few.least, 2, 1e-9);
}

}  // namespace
}  // namespace remat::test

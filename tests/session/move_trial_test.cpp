#include "session/move_trial.h"

#include <vector>

#include <gtest/gtest.h>

namespace remat::test {
namespace {

/// Gives each side the seconds in turn, as long as the trial goes on. Returns how many steps that took.
int run(MoveTrial& trial, const std::vector<double>& with, const std::vector<double>& without) {
  size_t moved = 0, stayed = 0;
  while (!trial.is_over()) {
    const bool moves = trial.wants_moves();
    trial.note(moves, moves ? with.at(moved++) : without.at(stayed++));
  }
  return static_cast<int>(moved + stayed);
}

TEST(MoveTrial, FollowsBothInTurnsAndThenTheOneWithTheShortestStep) {
  MoveTrial slower;
  EXPECT_TRUE(slower.wants_moves());
  EXPECT_EQ(run(slower, {1, 3, 2.5, 2.6}, {9, 2.4, 7, 8}), 2 * MoveTrial::kSteps);
  EXPECT_FALSE(slower.wants_moves()) << "the first step of each counts for nothing";
  EXPECT_EQ(slower.seconds_with_moves(), 2.5);
  EXPECT_EQ(slower.seconds_without_moves(), 2.4);
  MoveTrial faster;
  run(faster, {9, 2.3, 3, 3}, {2, 2.4, 2.4, 2.4});
  EXPECT_TRUE(faster.wants_moves());
}

TEST(MoveTrial, KeepsWhatItFound) {
  MoveTrial trial;
  run(trial, {1, 1, 1, 1}, {2, 2, 2, 2});
  for (int i = 0; i < 3; ++i) trial.note(false, 0.1);
  EXPECT_TRUE(trial.wants_moves());
}

}  // namespace
}  // namespace remat::test

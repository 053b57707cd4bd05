#include "session/pressure_budget.h"

#include <gtest/gtest.h>

namespace remat {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// Steps, a second apart.
class PressureBudgets : public testing::Test {
 protected:
  std::string look(int64_t left_mib, double stalled = 0, int64_t own_mib = 100) {
    now_ += std::chrono::seconds(1);
    return budget_.follow(own_mib * kMiB, {.bytes = left_mib * kMiB, .where = "/group", .stalled_percent = stalled},
                          now_);
  }
  int64_t limit() const { return budget_.limit(); }

  PressureBudget budget_;
  PressureBudget::Clock::time_point now_ = PressureBudget::Clock::now();
};

TEST_F(PressureBudgets, LeaveRoomForOthersInWhatIsLeft) {
  EXPECT_EQ(limit(), INT64_MAX);
  EXPECT_EQ(look(1100), "1.07 GiB are left in /group");
  EXPECT_LE(limit() + limit() / 8, 1200 * kMiB) << "and for free blocks between tensors";
  EXPECT_GE(limit(), 900 * kMiB);
}

TEST_F(PressureBudgets, FallAtOnceAndNotForLittle) {
  look(1100);
  const int64_t before = limit();
  EXPECT_EQ(look(1080), "") << "within the slack";
  EXPECT_EQ(limit(), before);
  EXPECT_EQ(look(500).find("lowered from "), 0);
  EXPECT_LT(limit(), 600 * kMiB * 5 / 6 + 1);
  look(0, 0, 0);
  EXPECT_EQ(limit(), 1) << "a limit is positive";
}

TEST_F(PressureBudgets, RiseToTheLeastThatWasLeftForAWhile) {
  look(500);
  const int64_t before = limit();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(look(i == 4 ? 1000 : 2000), "") << i;
  EXPECT_EQ(limit(), before);
  EXPECT_EQ(look(2000).find("raised from "), 0);
  EXPECT_GT(limit(), 850 * kMiB);
  EXPECT_LT(limit(), 1100 * kMiB * 5 / 6);
}

TEST_F(PressureBudgets, DoNotRiseWhereMemoryComesAndGoes) {
  look(500);
  const int64_t before = limit();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(look(i % 5 == 4 ? 505 : 2000), "") << i;
  EXPECT_EQ(limit(), before);
}

TEST_F(PressureBudgets, NeedMoreThanALongStepToRise) {
  look(500);
  now_ += std::chrono::minutes(10);
  look(2000);
  now_ += std::chrono::minutes(10);
  EXPECT_EQ(look(2000), "") << "two looks";
  EXPECT_NE(look(2000), "");
}

TEST_F(PressureBudgets, FallWhereTasksWaitForMemory) {
  look(1100);
  const int64_t before = limit();
  EXPECT_NE(look(1100, 25).find("tasks wait for memory 25 % of the time"), std::string::npos);
  EXPECT_EQ(limit(), before - before / 8);
  const int64_t lowered = limit();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(look(1100, 25), "") << "the average of ten seconds, after " << i;
  EXPECT_EQ(limit(), lowered);
  EXPECT_NE(look(1100, 25), "");
  EXPECT_EQ(limit(), lowered - lowered / 8);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(look(1100, 2), "") << "nothing rises while they wait a little";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(look(1100), "");
  EXPECT_NE(look(1100), "");
  EXPECT_EQ(limit(), before);
}

TEST_F(PressureBudgets, StayWhereNothingIsKnown) {
  look(500);
  const int64_t before = limit();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(budget_.follow(kMiB, {}, now_ + std::chrono::seconds(i)), "");
  EXPECT_EQ(limit(), before);
}

}  // namespace
}  // namespace remat

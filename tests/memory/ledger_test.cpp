#include "memory/ledger.h"

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/memory.h>

#include "memory/fake_reclaimer.h"

namespace remat::memory {
namespace {

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    start_accounting();
    ledger_.reset_peak();
    ledger_.reset_if_alone();
    base_ = ledger_.current();
  }
  static at::Tensor bytes(int64_t count) { return torch::empty({count}, torch::kByte); }

  Ledger& ledger_ = Ledger::of(c10::kCPU);
  int64_t base_ = 0;
};

TEST_F(LedgerTest, PlainFollowsCurrentWhereNothingIsFrozen) {
  auto kept = bytes(1000);
  bytes(5000);
  EXPECT_EQ(ledger_.plain_current(), base_ + 1000);
  EXPECT_EQ(ledger_.plain_peak(), base_ + 6000);
  ledger_.reset_if_alone();
  EXPECT_EQ(ledger_.plain_peak(), base_ + 1000);
}

TEST_F(LedgerTest, ThePeakOfAStepIsNotTheUsers) {
  bytes(5000);
  EXPECT_EQ(ledger_.step_peak(), base_ + 5000);
  ledger_.reset_peak();
  EXPECT_EQ(ledger_.peak(), base_);
  EXPECT_EQ(ledger_.step_peak(), base_ + 5000);
  bytes(7000);
  ledger_.reset_if_alone();
  EXPECT_EQ(ledger_.peak(), base_ + 7000);
  EXPECT_EQ(ledger_.step_peak(), base_);
}

TEST_F(LedgerTest, AStepThatBeginsInAnothersTakesNothingFromIt) {
  FakeReclaimer reclaimer;
  const auto other = ledger_.enforce(base_ + 100'000, reclaimer);
  bytes(5000);
  ledger_.reset_if_alone();
  EXPECT_EQ(ledger_.step_peak(), base_ + 5000);
  EXPECT_EQ(ledger_.plain_peak(), base_ + 5000);
}

TEST_F(LedgerTest, StepsThatRunAtOnceHavePeaksOfTheirOwn) {
  FakeReclaimer reclaimer;
  const auto limit = ledger_.enforce(base_ + 100'000, reclaimer);
  const auto kept = bytes(1000);
  bytes(5000);
  std::optional<MeasuredStep> second(ledger_);
  EXPECT_EQ(second->peak(), base_ + 1000);
  EXPECT_EQ(second->plain_peak(), base_ + 1000);
  bytes(3000);
  const MeasuredStep third(ledger_);
  bytes(2000);
  EXPECT_EQ(ledger_.step_peak(), base_ + 6000);
  EXPECT_EQ(second->peak(), base_ + 4000);
  EXPECT_EQ(second->plain_peak(), base_ + 4000);
  EXPECT_EQ(second->plain_peak_without_state(), base_ + 4000);
  EXPECT_EQ(third.peak(), base_ + 3000);
  second.reset();
  const MeasuredStep fourth(ledger_);
  EXPECT_EQ(fourth.peak(), base_ + 1000) << "it has the place of the second";
  std::vector<std::unique_ptr<MeasuredStep>> many(20);  // more than there are places
  for (auto& step : many) step = std::make_unique<MeasuredStep>(ledger_);
  bytes(9000);
  for (const auto& step : many) EXPECT_EQ(step->peak(), base_ + 10'000);
  EXPECT_EQ(third.peak(), base_ + 10'000);
}

TEST_F(LedgerTest, AsManyStepsAsThereAreMayRunAtOnce) {
  FakeReclaimer reclaimer;
  const auto limit = ledger_.enforce(base_ + 1'000'000, reclaimer);
  std::vector<std::unique_ptr<MeasuredStep>> steps;
  for (int i = 0; i < 40; ++i) {
    steps.push_back(std::make_unique<MeasuredStep>(ledger_));
    bytes(100 * (40 - i));
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(steps[static_cast<size_t>(i)]->peak(), base_ + 100 * (40 - i)) << i;
}

TEST_F(LedgerTest, StateOfAnOptimizerIsLeftOutOfOnePeak) {
  auto activation = bytes(1000);
  ledger_.begin_update();
  auto state = bytes(2000);
  bytes(500);  // scratch
  ledger_.end_update();
  EXPECT_EQ(ledger_.plain_peak(), base_ + 3500);
  EXPECT_EQ(ledger_.plain_peak_without_state(), base_ + 1500);
  ledger_.begin_update();  // has its state, and frees something
  activation.reset();
  ledger_.end_update();
  bytes(1600);
  EXPECT_EQ(ledger_.plain_peak(), base_ + 3600);
  EXPECT_EQ(ledger_.plain_peak_without_state(), base_ + 1600);
  EXPECT_EQ(ledger_.updates(), 2);
  ledger_.begin_update();
  ledger_.reset_if_alone();
  bytes(100);
  ledger_.end_update();  // it began before the step
  EXPECT_EQ(ledger_.updates(), 0);
  EXPECT_EQ(ledger_.plain_peak_without_state(), base_ + 2100);
}

TEST_F(LedgerTest, FrozenPlainLeavesOutWhatItsThreadDoes) {
  auto dropped = bytes(1000);
  at::Tensor replayed;
  {
    FrozenPlain frozen;
    FrozenPlain nested;
    dropped.reset();
    replayed = bytes(3000);
    std::thread([&] { bytes(70'000); }).join();
  }
  EXPECT_FALSE(FrozenPlain::active());
  EXPECT_EQ(ledger_.current(), base_ + 3000);
  EXPECT_EQ(ledger_.plain_current(), base_ + 1000);
  EXPECT_EQ(ledger_.plain_peak(), base_ + 71'000);
  ledger_.forget_plain(1000);
  EXPECT_EQ(ledger_.plain_current(), base_);
}

TEST_F(LedgerTest, AReclaimerIsAskedForWhatIsMissingUntilItFits) {
  FakeReclaimer reclaimer;
  for (int i = 0; i < 4; ++i) reclaimer.tensors.push_back(bytes(1000));
  auto enforcement = ledger_.enforce(base_ + 4500, reclaimer);
  EXPECT_EQ(ledger_.enforced_limit(), base_ + 4500);
  auto fits = bytes(500);
  EXPECT_EQ(reclaimer.calls, 0);
  auto pressed = bytes(2500);
  EXPECT_EQ(reclaimer.calls, 3);
  EXPECT_EQ(reclaimer.asked, 500);  // of the last call
  EXPECT_EQ(ledger_.current(), base_ + 4000);
  EXPECT_EQ(ledger_.peak(), base_ + 4500);
}

TEST_F(LedgerTest, RefusalLeavesTheAccountRight) {
  FakeReclaimer reclaimer;
  auto kept = bytes(1000);
  auto enforcement = ledger_.enforce(base_ + 1500, reclaimer);
  try {
    bytes(501);
    FAIL() << "the allocation passed the limit";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.budget_bytes(), base_ + 1500);
    EXPECT_EQ(error.lower_bound_bytes(), base_ + 1501);
  }
  EXPECT_EQ(ledger_.current(), base_ + 1000);
  EXPECT_EQ(ledger_.plain_current(), base_ + 1000);
  EXPECT_EQ(ledger_.peak(), base_ + 1000);
  EXPECT_NO_THROW(bytes(500));
  EXPECT_EQ(ledger_.peak(), base_ + 1500);
}

TEST_F(LedgerTest, WithSeveralLimitsTheSmallestHoldsAndAllAreAsked) {
  FakeReclaimer outer, inner;
  outer.tensors.push_back(bytes(1000));
  auto outer_limit = ledger_.enforce(base_ + 5000, outer);
  auto inner_limit = ledger_.enforce(base_ + 1200, inner);
  auto fits = bytes(600);
  EXPECT_EQ(inner.calls, 1);
  EXPECT_TRUE(outer.tensors.empty());
  EXPECT_THROW(bytes(601), BudgetError);
  EXPECT_EQ(inner.refusals, 1);
  EXPECT_EQ(outer.refusals, 0);
  inner_limit.reset();
  EXPECT_NO_THROW(bytes(601));
}

TEST_F(LedgerTest, NothingIsRefusedThatAsksForNothing) {
  FakeReclaimer reclaimer;
  auto kept = bytes(1000);
  auto enforcement = ledger_.enforce(base_ + 10, reclaimer);
  EXPECT_NO_THROW(bytes(0));
  EXPECT_THROW(bytes(1), BudgetError);
}

TEST_F(LedgerTest, NoDeviceWithoutItsLibrary) {
  EXPECT_THROW(Ledger::of(c10::Device(c10::kMPS)), Error);
  if (!torch::cuda::is_available()) {
    EXPECT_THROW(Ledger::of(c10::Device(c10::kCUDA, 0)), Error);
  }
}

/// Threads allocate, free and reclaim under one limit. The account samples itself at every allocation, so one byte
/// above the limit at any moment shows in the peak.
TEST_F(LedgerTest, ThePeakNeverPassesTheLimitUnderThreads) {
  constexpr int64_t kLimit = 4'000'000;
  FakeReclaimer reclaimer;
  std::atomic<int> served{0};
  auto enforcement = ledger_.enforce(base_ + kLimit, reclaimer);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<at::Tensor> mine;
      for (int i = 0; i < 1500; ++i) {
        try {
          at::Tensor tensor = bytes(1 + (i * 7919 + t * 104729) % 200'000);
          ++served;
          if (i % 3 == 0) {
            std::lock_guard lock(reclaimer.mutex);
            reclaimer.tensors.push_back(std::move(tensor));
          } else {
            mine.push_back(std::move(tensor));
          }
        } catch (const BudgetError&) {
          mine.clear();
        }
        if (mine.size() > 10) mine.erase(mine.begin(), mine.begin() + 5);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  reclaimer.tensors.clear();
  EXPECT_LE(ledger_.peak(), base_ + kLimit);
  EXPECT_GE(ledger_.peak(), base_ + kLimit * 9 / 10);
  EXPECT_EQ(ledger_.current(), base_);
  EXPECT_EQ(ledger_.plain_current(), base_);
  EXPECT_GT(served, 1500);
  EXPECT_GT(reclaimer.calls, 0);
}

}  // namespace
}  // namespace remat::memory

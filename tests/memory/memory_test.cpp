#include <remat/memory.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/error.h>

#include "memory/fake_reclaimer.h"
#include "memory/ledger.h"
#include "memory/limits.h"

namespace remat::memory {
namespace {

class Memory : public testing::Test {
 protected:
  void SetUp() override { start_accounting(); }
  void TearDown() override { set_limit(std::nullopt); }
};

TEST_F(Memory, CountsTheBytesAskedForAndThePeak) {
  const int64_t before = current();
  reset_peak();
  {
    auto small = torch::empty({3}, torch::kByte);
    auto large = torch::empty({1'000'001}, torch::kByte);
    EXPECT_EQ(current(), before + 1'000'004);
  }
  EXPECT_EQ(current(), before);
  EXPECT_EQ(peak(), before + 1'000'004);
  reset_peak();
  EXPECT_EQ(peak(), before);
}

/// In a process of its own, where nothing has been counted.
#define EXPECT_BEFORE_ACCOUNTING(condition)       \
  GTEST_FLAG_SET(death_test_style, "threadsafe"); \
  EXPECT_EXIT(std::exit([]() -> bool { return condition; }() ? 0 : 1), testing::ExitedWithCode(0), "")

int64_t allocated_after(const std::function<void()>& first) {
  const auto older = torch::empty({1000}, torch::kByte);
  first();
  const int64_t before = current();
  const auto tensor = torch::empty({500}, torch::kByte);
  return peak() == before + 500 ? current() - before : -1;
}

TEST(BeforeAccounting, CurrentStartsIt) {
  EXPECT_BEFORE_ACCOUNTING(allocated_after([] { current(); }) == 500);
}

TEST(BeforeAccounting, ResetPeakStartsIt) {
  EXPECT_BEFORE_ACCOUNTING(allocated_after([] { reset_peak(); }) == 500);
}

TEST(BeforeAccounting, CurrentStartsItOnTheMetaDevice) {
  EXPECT_BEFORE_ACCOUNTING([] {
    const int64_t before = current(c10::kMeta);
    const auto tensor = torch::empty({500}, torch::TensorOptions().dtype(torch::kByte).device(torch::kMeta));
    return current(c10::kMeta) - before;
  }() == 500);
}

TEST(BeforeAccounting, ThePeakIsNotKnown) {
  for (const c10::DeviceType device : {c10::kCPU, c10::kMeta}) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        try { peak(device); } catch (const Error& error) {
          std::cerr << error.what();
          std::exit(0);
        },
        testing::ExitedWithCode(0), "is not known: nothing has been counted so far; call start_accounting");
  }
}

TEST_F(Memory, StartingAgainChangesNothing) {
  auto tensor = torch::empty({1000}, torch::kByte);
  const int64_t before = current();
  const auto* allocator = c10::GetCPUAllocator();
  start_accounting();
  EXPECT_EQ(c10::GetCPUAllocator(), allocator);
  EXPECT_EQ(current(), before);
}

TEST_F(Memory, TheLimitIsTheSmallestThatHolds) {
  const int64_t device = std::min(physical_memory(), cgroup_limit());
  EXPECT_EQ(limit(), device);
  set_limit(device + 1);
  EXPECT_EQ(limit(), device);
  set_limit(device / 2);
  EXPECT_EQ(limit(), device / 2);
  {
    FakeReclaimer reclaimer;
    auto enforcement = Ledger::of(c10::kCPU).enforce(device - 1, reclaimer);
    EXPECT_EQ(limit(), device - 1);
  }
  set_limit(std::nullopt);
  EXPECT_EQ(limit(), device);
  EXPECT_THROW(set_limit(0), Error);
  EXPECT_THROW(set_limit(-1), Error);
}

}  // namespace
}  // namespace remat::memory

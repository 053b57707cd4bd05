#include <remat/memory.h>

#include <algorithm>

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

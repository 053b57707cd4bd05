#include <remat/memory.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace remat::memory {
namespace {

class Memory : public testing::Test {
 protected:
  void SetUp() override { start_accounting(); }
};

TEST_F(Memory, CountsTheBytesAskedForAndThePeak) {
  const int64_t before = current();
  reset_peak();
  {
    auto small = torch::empty({3}, torch::kByte);
    auto large = torch::empty({1000001}, torch::kByte);
    EXPECT_EQ(current(), before + 1000004);
  }
  EXPECT_EQ(current(), before);
  EXPECT_EQ(peak(), before + 1000004);
}

}  // namespace
}  // namespace remat::memory

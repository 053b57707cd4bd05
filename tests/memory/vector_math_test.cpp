#include "device/vector_math.h"

#include <cstdlib>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/memory.h>

namespace remat::device {
namespace {

/// Two threads make the first call at once, and then the second. (In a process that has begun to count.)
[[noreturn]] void compare_calls(at::Tensor (*function)(const at::Tensor&)) {
  at::set_num_threads(2);
  memory::start_accounting();
  torch::manual_seed(0);
  const at::Tensor x = torch::rand({4096}) * 0.9 + 0.05;
  const at::Tensor square = torch::rand({64, 64});
  square.mm(square);
  for (int i = 0; i < 50; ++i) torch::ones({100'000}) + 1;  // the threads are awake
  const at::Tensor first = function(x);
  std::_Exit(at::equal(first, function(x)) ? 0 : 1);
}

class VectorMathDeathTest : public testing::Test {
 protected:
  // Each in a process of its own that begins anew.
  VectorMathDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// On some processors one of five processes has other bits in its first call, where nothing is done about it.
TEST_F(VectorMathDeathTest, TheFirstCallHasTheBitsOfLaterOnes) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EXIT(compare_calls(&at::exp), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(compare_calls(&at::sqrt), testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace remat::device

#include "replay/batch_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/compare.h"

namespace remat {
namespace {

torch::jit::Stack arguments(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return {input, weight, bias, c10::IValue(), c10::IValue(), true, 0.1, 1e-5};
}

TEST(BatchNorm, IsRepeatedWithTheSameBits) {
  check_batch_norm();
  torch::manual_seed(1);
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{2, 3}, {16, 64, 31, 33}, {5, 7, 9}, {2, 3, 4, 5, 6}, {1, 1, 2}}) {
    for (const bool affine : {true, false}) {
      const auto input = torch::randn(sizes) * 100 - 30;
      const auto weight = affine ? torch::randn({sizes[1]}) : at::Tensor(),
                 bias = affine ? torch::randn({sizes[1]}) : at::Tensor();
      const auto [output, mean, deviation] = at::native_batch_norm(input, weight, bias, {}, {}, true, 0.1, 1e-5);
      auto stack = arguments(input, weight, bias);
      ASSERT_TRUE(repeat_batch_norm(stack, mean, deviation)) << input.sizes();
      ASSERT_EQ(stack.size(), 3U);
      EXPECT_TRUE(test::same_bits(stack[0].toTensor(), output)) << input.sizes();
    }
  }
}

TEST(BatchNorm, OtherTypesAndLayoutsAreLeftToTheOperator) {
  check_batch_norm();
  const auto mean = torch::randn({3}), deviation = torch::rand({3});
  const at::Tensor inputs[] = {torch::randn({2, 3, 4, 4}, torch::kDouble),
                               torch::randn({2, 3, 4, 4}).to(torch::kBFloat16),
                               torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast)};
  for (const auto& input : inputs) {
    auto stack = arguments(input, {}, {});
    EXPECT_FALSE(repeat_batch_norm(stack, mean, deviation));
    EXPECT_EQ(stack.size(), 8U);
  }
}

}  // namespace
}  // namespace remat

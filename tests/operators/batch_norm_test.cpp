// Batch normalization from its saved statistics.
#include <array>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "operators/operator_info.h"
#include "operators/special_operator.h"
#include "support/compare.h"
#include "support/inputs.h"

namespace remat {
namespace {

const OperatorInfo& batch_norm() {
  check_special_operators();
  return *operator_info(c10::OperatorName("aten::native_batch_norm", ""));
}

torch::jit::Stack batch_norm_arguments(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return {input, weight, bias, c10::IValue(), c10::IValue(), true, 0.1, 1e-5};
}

/// Replaces the arguments by the results, of which the statistics are known.
bool repeat_batch_norm(torch::jit::Stack& stack, const at::Tensor& mean, const at::Tensor& deviation) {
  const std::array kept = {StoragePtr::reclaim_copy(storage_of(mean)), StoragePtr::reclaim_copy(storage_of(deviation))};
  return batch_norm().shortcut->repeat(stack, kept);
}

TEST(BatchNorm, IsRepeatedWithTheSameBits) {
  torch::manual_seed(1);
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{2, 3}, {16, 64, 31, 33}, {5, 7, 9}, {2, 3, 4, 5, 6}, {1, 1, 2}}) {
    for (const bool affine : {true, false}) {
      const auto input = torch::randn(sizes) * 100 - 30;
      const auto weight = affine ? torch::randn({sizes[1]}) : at::Tensor(),
                 bias = affine ? torch::randn({sizes[1]}) : at::Tensor();
      const auto [output, mean, deviation] = at::native_batch_norm(input, weight, bias, {}, {}, true, 0.1, 1e-5);
      auto stack = batch_norm_arguments(input, weight, bias);
      ASSERT_TRUE(repeat_batch_norm(stack, mean, deviation)) << input.sizes();
      ASSERT_EQ(stack.size(), 3U);
      EXPECT_TRUE(test::same_bits(stack[0].toTensor(), output)) << input.sizes();
      EXPECT_TRUE(test::same_bits(stack[1].toTensor(), mean)) << input.sizes();
      EXPECT_TRUE(test::same_bits(stack[2].toTensor(), deviation)) << input.sizes();
    }
  }
}

TEST(BatchNorm, OtherTypesAndLayoutsAreLeftToTheOperator) {
  const auto mean = torch::randn({3}), deviation = torch::rand({3});
  const at::Tensor inputs[] = {torch::randn({2, 3, 4, 4}, torch::kDouble),
                               torch::randn({2, 3, 4, 4}).to(torch::kBFloat16),
                               torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast)};
  for (const auto& input : inputs) {
    auto stack = batch_norm_arguments(input, {}, {});
    EXPECT_FALSE(repeat_batch_norm(stack, mean, deviation));
    EXPECT_EQ(stack.size(), 8U);
  }
}

TEST(BatchNorm, KeepsItsStatistics) {
  const Shortcut& shortcut = *batch_norm().shortcut;
  EXPECT_FALSE(shortcut.reads(0));
  EXPECT_TRUE(shortcut.reads(1) && shortcut.reads(2));
  EXPECT_FALSE(shortcut.reads(3));
}

TEST(BatchNorm, UpdatesStatisticsInTraining) {
  auto stack = batch_norm_arguments(torch::randn({2, 3}), {}, {});
  EXPECT_TRUE(batch_norm().updates_statistics(test::inputs_of(stack)));
  stack[5] = false;
  EXPECT_FALSE(batch_norm().updates_statistics(test::inputs_of(stack)));
  // Nothing else of it is written, whether or not the schema marks the statistics.
  for (const char* const name : {"aten::native_batch_norm", "aten::_native_batch_norm_legit"}) {
    const OperatorInfo& info = *operator_info(c10::OperatorName(name, ""));
    EXPECT_TRUE(info.written.empty()) << name;
    EXPECT_EQ((std::vector<int>{info.statistics.begin(), info.statistics.end()}), (std::vector{3, 4})) << name;
  }
  EXPECT_TRUE(operator_info(c10::OperatorName("aten::_native_batch_norm_legit", "no_stats"))->statistics.empty());
}

}  // namespace
}  // namespace remat

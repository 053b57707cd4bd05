#include "plan/costly.h"

#include <gtest/gtest.h>

#include "step_builder.h"

namespace remat::test {
namespace {

using namespace planners;

TEST(Costly, OperatorsAreToldByName) {
  for (const auto* name : {"aten::mm", "aten::addmm.out", "aten::bmm", "aten::linear", "mm"}) {
    EXPECT_TRUE(is_product(name)) << name;
  }
  for (const auto* name : {"aten::mul", "aten::add.Tensor", "aten::mm_like", "", "aten::"}) {
    EXPECT_FALSE(is_product(name)) << name;
    EXPECT_FALSE(is_convolution(name)) << name;
    EXPECT_FALSE(is_attention(name)) << name;
  }
  for (const auto* name : {"aten::convolution", "aten::cudnn_convolution", "aten::conv2d.padding"}) {
    EXPECT_TRUE(is_convolution(name)) << name;
  }
  EXPECT_TRUE(is_attention("aten::_scaled_dot_product_flash_attention_for_cpu"));
  EXPECT_TRUE(is_attention("aten::_efficient_attention_forward"));
  for (const auto* name : {"aten::mkldnn_rnn_layer", "aten::_cudnn_rnn"}) EXPECT_TRUE(is_recurrent(name)) << name;
  for (const auto* name : {"aten::dot", "aten::linear", "aten::convolution", "aten::mkldnn_rnn_layer",
                           "aten::_scaled_dot_product_attention_math"}) {
    EXPECT_TRUE(is_compute(name)) << name;
  }
  EXPECT_FALSE(is_compute("aten::gelu"));
}

TEST(Costly, WhatIsWrittenOverAResultIsOne) {
  StepBuilder step;
  const int32_t product = step.lost({0});
  step.named("aten::mm");
  const int32_t with_bias = step.saved({product}, 1);
  step.named("aten::add_").in_place();
  const int32_t other = step.saved({with_bias}, 1);
  const auto results = results_of(step.graph(), is_product);
  EXPECT_TRUE(results[static_cast<size_t>(product)]);
  EXPECT_TRUE(results[static_cast<size_t>(with_bias)]);
  EXPECT_FALSE(results[static_cast<size_t>(other)]);
  EXPECT_FALSE(results[0]);
}

}  // namespace
}  // namespace remat::test

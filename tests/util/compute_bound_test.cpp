#include "util/compute_bound.h"

#include <gtest/gtest.h>

namespace remat::test {
namespace {

TEST(ComputeBound, OperatorsAreToldByName) {
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
    EXPECT_TRUE(is_compute_bound(name)) << name;
  }
  EXPECT_FALSE(is_compute_bound("aten::gelu"));
}

}  // namespace
}  // namespace remat::test

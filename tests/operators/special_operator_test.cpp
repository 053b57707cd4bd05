// What is known of special operators. That remat does without is tested from Python: special_operators_test.py.
#include "operators/special_operator.h"

#include <set>

#include <gtest/gtest.h>
#include <torch/library.h>

#include "operators/operator_info.h"
#include "support/inputs.h"

namespace remat::test {
namespace {

const OperatorInfo& special_info(const char* name) { return *operator_info(c10::OperatorName(name, "")); }

TEST(SpecialOperators, AreAllThere) {
  std::set<std::string_view> names;
  for (const SpecialOperator* special : special_operators()) names.insert(special->name);
  EXPECT_EQ(names, (std::set<std::string_view>{"batch_norm", "collectives", "compiled_code", "recurrent",
                                               "softmax_in_place"}));
}

TEST(SpecialOperators, SettleEveryDoubt) {
  for (const Doubt doubt : {Doubt::kCommunication, Doubt::kStatistics, Doubt::kPadding}) {
    EXPECT_TRUE(is_settled(doubt)) << static_cast<int>(doubt);
  }
}

TEST(SpecialOperators, OfRecurrentLayersHaveAWorkspace) {
  EXPECT_EQ(special_info("aten::mkldnn_rnn_layer").workspace_result, 3);
  EXPECT_EQ(special_info("aten::_cudnn_rnn").workspace_result, 3);
  EXPECT_EQ(special_info("aten::_thnn_fused_lstm_cell").workspace_result, -1);
  EXPECT_TRUE(special_info("aten::mkldnn_rnn_layer").repeatable());
}

TEST(SpecialOperators, OfSoftmaxMayWriteOverTheGradient) {
  const auto gradient = at::randn({4, 8});
  const auto may = [&](const at::Tensor& given, at::ScalarType input_type, std::string_view node) {
    const torch::jit::Stack inputs = {given, gradient, 1, input_type};
    return special_info("aten::_softmax_backward_data").reuses_gradient(inputs_of(inputs), node);
  };
  EXPECT_TRUE(may(gradient, at::kFloat, "SoftmaxBackward0"));
  EXPECT_FALSE(may(gradient, at::kHalf, "SoftmaxBackward0")) << "the result is of another type";
  EXPECT_FALSE(may(gradient, at::kFloat, "MyFunction")) << "which may read the gradient afterwards";
  EXPECT_FALSE(may(at::randn({8, 4}).t(), at::kFloat, "SoftmaxBackward0")) << "plain's result has other strides";
  EXPECT_NE(special_info("aten::_log_softmax_backward_data").reuses_gradient, nullptr);
  EXPECT_EQ(special_info("aten::tanh_backward").reuses_gradient, nullptr);
}

/// As python/src/compiled.cpp defines them.
TEST(SpecialOperators, OfCompiledCodeAreTrusted) {
  torch::Library library(torch::Library::FRAGMENT, "compiled", std::nullopt, __FILE__, __LINE__);
  library.def("empty_strided(int[] size) -> Tensor", {at::Tag::nondeterministic_bitwise});
  library.def("kernel_of_this_test(Tensor[] read, *, Tensor(a!)[] out) -> Tensor(a!)[]");
  library.def("graph_of_this_test(Tensor?[] tensors) -> Tensor[]");
  const OperatorInfo &memory = special_info("compiled::empty_strided"),
                     &kernel = special_info("compiled::kernel_of_this_test"),
                     &graph = special_info("compiled::graph_of_this_test");
  EXPECT_TRUE(memory.blank && !memory.foreign && memory.repeatable());
  EXPECT_EQ(memory.workspace_result, 0);
  EXPECT_TRUE(!kernel.blank && !kernel.foreign && !kernel.own_autograd);
  EXPECT_TRUE(graph.foreign && graph.own_autograd);
}

TEST(SpecialOperators, OfCollectivesAreTold) {
  torch::Library library(torch::Library::FRAGMENT, "c10d", std::nullopt, __FILE__, __LINE__);
  library.def("reduced_in_this_test(Tensor[] tensors, Tensor[] input_tensors) -> Tensor[]");
  const OperatorInfo& reduced = special_info("c10d::reduced_in_this_test");
  EXPECT_TRUE(reduced.collective && !reduced.repeatable() && !reduced.may_draw());
  EXPECT_TRUE(reduced.writes(0) && !reduced.writes(1));
  EXPECT_FALSE(special_info("aten::mm").collective);
}

}  // namespace
}  // namespace remat::test

// What schemas and tables say of operators.
#include "operators/operator_info.h"

#include <gtest/gtest.h>
#include <torch/library.h>

#include "support/expect_error.h"

namespace remat::test {
namespace {

const OperatorInfo& info_of(const char* name, const char* overload = "") {
  return *operator_info(c10::OperatorName(name, overload));
}

std::vector<int> written_by(const OperatorInfo& info) { return {info.written.begin(), info.written.end()}; }

TEST(OperatorInfo, IsLookedUpOnce) {
  EXPECT_EQ(&info_of("aten::add", "Tensor"), &info_of("aten::add", "Tensor"));
  EXPECT_EQ(info_of("aten::add", "Tensor").name, "aten::add.Tensor");
  EXPECT_EQ(info_of("aten::add", "Tensor").base_name(), "aten::add");
  EXPECT_EQ(operator_info(c10::OperatorName("aten::no_such", "")), nullptr);
}

TEST(OperatorInfo, WritesWhatItsSchemaMarks) {
  EXPECT_EQ(written_by(info_of("aten::mul", "Tensor")), (std::vector<int>{}));
  EXPECT_EQ(written_by(info_of("aten::mul_", "Tensor")), (std::vector{0}));
  EXPECT_EQ(written_by(info_of("aten::mul", "out")), (std::vector{2}));
  EXPECT_TRUE(info_of("aten::mul", "out").overwrites);
  EXPECT_FALSE(info_of("aten::mul_", "Tensor").overwrites) << "it reads what it writes to";
  EXPECT_TRUE(info_of("aten::fill_", "Scalar").overwrites);
  EXPECT_TRUE(info_of("aten::mul_", "Tensor").writes(0));
  EXPECT_FALSE(info_of("aten::mul_", "Tensor").writes(1));
}

TEST(OperatorInfo, OfViewsAndCompositesIsThatTheyAreNotRecorded) {
  for (const char* const name :
       {"aten::t", "aten::layer_norm", "aten::detach", "aten::squeeze_", "aten::record_stream"}) {
    EXPECT_TRUE(info_of(name).never_recorded) << name;
  }
  for (const char* const name : {"aten::mm", "aten::resize_", "aten::clone"}) {
    EXPECT_FALSE(info_of(name).never_recorded) << name;
  }
  EXPECT_TRUE(info_of("aten::squeeze_").reshapes);
  EXPECT_FALSE(info_of("aten::resize_").reshapes) << "there may be elements that were not there";
  EXPECT_TRUE(written_by(info_of("aten::record_stream")).empty());
}

TEST(OperatorInfo, KnowsWhoDraws) {
  EXPECT_TRUE(info_of("aten::bernoulli_", "float").random);
  EXPECT_EQ(info_of("aten::bernoulli_", "float").generator_argument, 2);
  EXPECT_TRUE(info_of("aten::native_dropout").random);
  EXPECT_EQ(info_of("aten::native_dropout").generator_argument, -1);
  EXPECT_FALSE(info_of("aten::mm").random);
}

TEST(OperatorInfo, KnowsFactories) {
  EXPECT_TRUE(info_of("aten::empty", "memory_format").factory);
  EXPECT_FALSE(info_of("aten::empty", "memory_format").fills_result);
  EXPECT_TRUE(info_of("aten::zeros").fills_result);
  EXPECT_TRUE(info_of("aten::zeros_like").factory && info_of("aten::zeros_like").fills_result);
  EXPECT_FALSE(info_of("aten::clone").factory);
}

/// Of whose schema nothing is known to be true.
TEST(OperatorInfo, OfOtherLibrariesIsForeign) {
  torch::Library library(torch::Library::FRAGMENT, "operator_info_test", std::nullopt, __FILE__, __LINE__);
  library.def("gate(Tensor x, Generator? a, Generator? b) -> Tensor");
  const OperatorInfo& gate = info_of("operator_info_test::gate");
  EXPECT_TRUE(gate.foreign && gate.own_autograd && gate.switches && gate.may_draw());
  EXPECT_TRUE(gate.several_generators);
  EXPECT_FALSE(gate.repeatable()) << "the state of one generator is kept";
  EXPECT_FALSE(info_of("aten::mm").foreign || info_of("aten::mm").own_autograd);
}

TEST(OperatorInfo, OfAnOperatorThatIsRegisteredAnewIsAnother) {
  const OperatorInfo* first = nullptr;
  {
    torch::Library library(torch::Library::FRAGMENT, "operator_info_test", std::nullopt, __FILE__, __LINE__);
    library.def("anew(Tensor x) -> Tensor");
    first = &info_of("operator_info_test::anew");
    EXPECT_TRUE(first->is_current());
  }
  EXPECT_FALSE(first->is_current());
  torch::Library library(torch::Library::FRAGMENT, "operator_info_test", std::nullopt, __FILE__, __LINE__);
  library.def("anew(Tensor(a!) x) -> Tensor(a!)");
  EXPECT_EQ(written_by(info_of("operator_info_test::anew")), (std::vector{0}));
  EXPECT_TRUE(written_by(*first).empty()) << "tapes may refer to it";
}

TEST(OperatorInfo, DeclarationsOfViewsAndCollectivesAreRefused) {
  EXPECT_THROW(declare_operator("aten::no_such", Declared::kRepeatable), Error);
  EXPECT_THROW(declare_operator("aten::linear", Declared::kNotRepeatable), Error);
  EXPECT_THROW(declare_operator("aten::t", Declared::kRepeatable), Error);
  torch::Library library(torch::Library::FRAGMENT, "c10d", std::nullopt, __FILE__, __LINE__);
  library.def("declared_in_this_test(Tensor x) -> Tensor");
  EXPECT_ERROR(declare_operator("c10d::declared_in_this_test", Declared::kRepeatable), "communicates with other");
}

TEST(OperatorInfo, DeclarationsHoldForOperatorsThatAreRegisteredLater) {
  for (int i = 0; i < 2; ++i) {
    torch::Library library(torch::Library::FRAGMENT, "operator_info_test", std::nullopt, __FILE__, __LINE__);
    library.def("declared(Tensor x) -> Tensor");
    if (i == 0) declare_operator("operator_info_test::declared", Declared::kWritesArguments);
    EXPECT_TRUE(info_of("operator_info_test::declared").writes_arguments()) << i;
    EXPECT_FALSE(info_of("operator_info_test::declared").repeatable()) << i;
  }
}

}  // namespace
}  // namespace remat::test

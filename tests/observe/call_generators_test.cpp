// Generators that calls draw from.
#include "observe/call_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "support/inputs.h"
#include "tape/generator_state.h"

namespace remat::test {
namespace {

const OperatorInfo& drawing(const char* name, const char* overload = "") {
  return *operator_info(c10::OperatorName(name, overload));
}

TEST(CallGenerators, OfWhatDrawsNothingHaveNoState) {
  const std::vector<c10::IValue> inputs = {torch::ones({2, 2}), torch::ones({2, 2})};
  CallGenerators generators(drawing("aten::mm"), inputs_of(inputs));
  const auto state = generators.take_state();
  ASSERT_TRUE(state.has_value());
  EXPECT_FALSE(state->state.defined());
  uint64_t drawn = 1;
  EXPECT_TRUE(generators.has_drawn_alone(drawn));
  EXPECT_EQ(drawn, 0U);
}

TEST(CallGenerators, KeepTheStateFromBeforeTheCall) {
  torch::manual_seed(5);
  const std::vector<c10::IValue> inputs = {torch::empty({64}), 0.5, c10::IValue()};
  CallGenerators generators(drawing("aten::bernoulli_", "float"), inputs_of(inputs));
  const auto before = generators.take_state();
  ASSERT_TRUE(before && before->state.defined());
  EXPECT_EQ(before->generator, at::detail::getDefaultCPUGenerator());
  const auto first = torch::rand({8});
  uint64_t drawn = 0;
  EXPECT_TRUE(generators.has_drawn_alone(drawn));
  EXPECT_EQ(drawn, state_checksum(before->generator));
  {
    const GeneratorRestorer restorer({before->generator, before->state, drawn});
    EXPECT_TRUE(torch::equal(torch::rand({8}), first));
    EXPECT_TRUE(restorer.has_drawn_the_same());
  }
  EXPECT_EQ(drawn, state_checksum(before->generator)) << "the state of now is there again";
}

TEST(CallGenerators, OfACallThatIsGivenOneAreThatOne) {
  const auto own = at::make_generator<at::CPUGeneratorImpl>(uint64_t{3});
  const std::vector<c10::IValue> inputs = {torch::empty({4}), 0.5, own};
  CallGenerators generators(drawing("aten::bernoulli_", "float"), inputs_of(inputs));
  EXPECT_EQ(generators.take_state()->generator, own);
}

/// A user's operator may draw from the default generator beside the one that it is given.
TEST(CallGenerators, NoticeDrawsFromASecondOne) {
  torch::Library library(torch::Library::FRAGMENT, "call_generators_test", std::nullopt, __FILE__, __LINE__);
  library.def("draw(Tensor x, Generator? generator) -> Tensor");
  const auto own = at::make_generator<at::CPUGeneratorImpl>(uint64_t{3});
  for (const bool draws_elsewhere : {false, true}) {
    const std::vector<c10::IValue> inputs = {torch::ones({4}), own};
    CallGenerators generators(drawing("call_generators_test::draw"), inputs_of(inputs));
    ASSERT_TRUE(generators.take_state().has_value());
    torch::rand({4}, own);
    if (draws_elsewhere) torch::rand({4});
    uint64_t drawn = 0;
    EXPECT_EQ(generators.has_drawn_alone(drawn), !draws_elsewhere);
  }
}

TEST(CallGenerators, WhoseStateWasNotKeptAreForgotten) {
  const std::vector<c10::IValue> inputs = {torch::empty({64}), 0.5, c10::IValue()};
  CallGenerators generators(drawing("aten::bernoulli_", "float"), inputs_of(inputs));
  generators.take_state();
  generators.forget_state();
  uint64_t drawn = 1;
  EXPECT_TRUE(generators.has_drawn_alone(drawn));
  EXPECT_EQ(drawn, 0U);
}

}  // namespace
}  // namespace remat::test

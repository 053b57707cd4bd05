// A step that is told of its forward calls, as remat.wrap() does from Python.
#include "support/compare.h"

namespace remat::test {
namespace {

struct Calls {
  torch::nn::Sequential model;
  at::Tensor x;

  Calls() {
    torch::manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      model->push_back(torch::nn::Linear(64, 64));
      model->push_back(torch::nn::Tanh());
    }
    x = torch::randn({256, 64});
  }

  at::Tensor call(Step& step) {
    step.enter_forward();
    auto result = model->forward(x);
    step.leave_forward();
    return result;
  }
};

TEST(StepCalls, EndsWithTheBackwardThatLeavesNoValuesThoughItWasToldBefore) {
  Calls calls;
  Session session;
  auto step = session.step();
  const auto result = calls.call(step);
  step.end_when_released(/*completed=*/true);
  EXPECT_FALSE(step.has_ended());
  result.square().mean().backward();
  EXPECT_TRUE(step.has_ended());
  EXPECT_TRUE(session.report().completed);
}

TEST(StepCalls, EndsWhenTheResultIsLetGoOf) {
  Calls calls;
  Session session;
  auto step = session.step();
  auto result = calls.call(step);
  step.end_when_released(/*completed=*/false);
  EXPECT_FALSE(step.has_ended());
  result.reset();
  EXPECT_TRUE(step.has_ended());
  EXPECT_FALSE(session.report().completed);
}

TEST(StepCalls, ARetainedGraphKeepsTheStepUntilTheLastBackward) {
  Calls calls;
  Session session;
  auto step = session.step();
  const auto loss = calls.call(step).square().mean();
  step.end_when_released(/*completed=*/true);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_FALSE(step.has_ended());
  loss.backward();
  EXPECT_TRUE(step.has_ended());
}

TEST(StepCalls, AnotherModelsSmallerBudgetHoldsUntilTheStepEnds) {
  for (const auto& budget : {Budget(), Budget::percent(90)}) {
    Calls outer, inner;
    Session session({.budget = budget});
    {
      auto step = session.step();
      const int64_t smaller = memory::current() + 100'000;
      const auto result = outer.call(step);
      step.hold_under(smaller, "the inner model");
      step.hold_under(2 * smaller, "a model with more");
      try {
        inner.call(step);
        FAIL() << "that cannot fit";
      } catch (const BudgetError& error) {
        EXPECT_EQ(error.budget_bytes(), smaller);
        EXPECT_NE(std::string(error.what()).find(", with the inner model inside: "), std::string::npos) << error.what();
      }
      EXPECT_EQ(step.end(/*completed=*/false).budget_bytes, smaller);
    }
    auto step = session.step();
    EXPECT_NO_THROW(outer.call(step).sum().backward());
  }
}

}  // namespace
}  // namespace remat::test

// A step that is told of its forward calls, as remat.wrap() does from Python.
#include <remat/extension.h>

#include "support/compare.h"

namespace remat::test {
namespace {

struct Model {
  torch::nn::Sequential layers;
  at::Tensor x;

  Model() {
    torch::manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      layers->push_back(torch::nn::Linear(64, 64));
      layers->push_back(torch::nn::Tanh());
    }
    x = torch::randn({256, 64});
  }

  at::Tensor call(Step& step) {
    const extension::CalledStep called(step);
    called.enter_forward();
    auto result = layers->forward(x);
    called.leave_forward();
    return result;
  }
};

class StepCalls : public ::testing::Test {
 protected:
  Model model_;
  Session session_;
  Step step_ = session_.step();
  const extension::CalledStep called_{step_};
};

TEST_F(StepCalls, EndsWithTheBackwardThatLeavesNoValues) {
  const auto result = model_.call(step_);
  EXPECT_FALSE(step_.has_ended());
  EXPECT_EQ(called_.backward_passes(), 0);
  result.square().mean().backward();
  EXPECT_TRUE(step_.has_ended());
  EXPECT_TRUE(session_.report().completed);
}

TEST_F(StepCalls, EndsWhenTheResultIsLetGoOf) {
  auto result = model_.call(step_);
  EXPECT_FALSE(step_.has_ended());
  result.reset();
  EXPECT_TRUE(step_.has_ended());
  EXPECT_FALSE(session_.report().completed);
}

TEST_F(StepCalls, ARetainedGraphKeepsTheStepUntilTheLastBackward) {
  const auto loss = model_.call(step_).square().mean();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_FALSE(step_.has_ended());
  EXPECT_EQ(called_.backward_passes(), 1);
  loss.backward();
  EXPECT_TRUE(step_.has_ended());
}

// What is computed of the result for a log saves values, and lets go of them.
TEST_F(StepCalls, GoesOnWhereTheCallsHaveSavedNothing) {
  const auto shift = torch::ones({64}, torch::requires_grad());
  called_.enter_forward();
  const auto result = model_.x + shift;
  called_.leave_forward();
  result.exp().sum();
  EXPECT_FALSE(step_.has_ended());
  result.exp().sum().backward();
  EXPECT_EQ(called_.backward_passes(), 1);
}

// A notebook keeps a result, and trains another model.
TEST_F(StepCalls, EndsAfterManyBackwardPassesOfOthers) {
  const auto kept = model_.call(step_);
  Model other;
  const auto train = [&] { other.layers->forward(other.x).square().mean().backward(); };
  for (int i = 0; i < 32; ++i) train();
  EXPECT_FALSE(step_.has_ended());
  train();
  EXPECT_TRUE(step_.has_ended());
  EXPECT_NO_THROW(kept.sum().backward());
}

TEST_F(StepCalls, GoesOnWhereBackwardPassesLeadIntoIt) {
  const auto kept = model_.call(step_);
  for (int i = 0; i < 40; ++i) model_.call(step_).square().mean().backward();
  EXPECT_FALSE(step_.has_ended());
}

TEST(StepCallsOfTwoModels, AnotherModelsSmallerBudgetHoldsUntilTheStepEnds) {
  for (const auto& budget : {Budget(), Budget::percent(90)}) {
    Model outer, inner;
    Session session({.budget = budget});
    {
      auto step = session.step();
      const int64_t smaller = memory::current() + 100'000;
      const auto result = outer.call(step);
      extension::CalledStep(step).hold_under(smaller, "the inner model");
      extension::CalledStep(step).hold_under(2 * smaller, "a model with more");
      try {
        inner.call(step);
        FAIL() << "that cannot fit";
      } catch (const BudgetError& error) {
        EXPECT_EQ(error.budget_bytes(), smaller);
        EXPECT_NE(std::string(error.what()).find(", with the inner model inside, is out of memory. "),
                  std::string::npos)
            << error.what();
      }
      EXPECT_EQ(step.end(/*completed=*/false).budget_bytes, smaller);
    }
    auto step = session.step();
    EXPECT_NO_THROW(outer.call(step).sum().backward());
  }
}

}  // namespace
}  // namespace remat::test

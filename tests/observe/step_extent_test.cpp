// What belongs to a step of which the forward calls are known.
#include "observe/step_extent.h"

#include <optional>
#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/inputs.h"

namespace remat::test {
namespace {

class StepExtentTest : public testing::Test {
 protected:
  static StepExtent::Activity records() { return {.watched = true, .records = true, .histories = {}}; }
  StepExtent::Activity reads(const at::Tensor& x) const {
    const std::vector<c10::IValue> inputs = {x};
    StepExtent::Activity activity = records();
    if (auto history = history_of(inputs_of(inputs))) activity.histories.push_back(std::move(history));
    return activity;
  }

  bool released = false;
  std::optional<bool> ended;  ///< completed
  std::shared_ptr<StepExtent> extent =
      std::make_shared<StepExtent>([this](bool completed) { ended = completed; }, [this] { return released; });
  at::Tensor w = torch::ones({4}).requires_grad_();
};

TEST_F(StepExtentTest, WithoutForwardCallsIsEverything) {
  EXPECT_FALSE(extent->is_between_calls());
  EXPECT_TRUE(extent->covers(records()));
}

TEST_F(StepExtentTest, BetweenCallsIsWhatLeadsIntoOne) {
  const at::Tensor before = w * 2;
  extent->enter_forward();
  EXPECT_TRUE(extent->covers(records()));
  const at::Tensor inside = w * 3;
  extent->leave_forward();
  const at::Tensor after = w * 4, loss = inside.exp().sum();
  EXPECT_TRUE(extent->is_between_calls());
  EXPECT_FALSE(extent->covers(records()));
  EXPECT_FALSE(extent->covers(reads(before)));
  EXPECT_FALSE(extent->covers(reads(after)));
  EXPECT_TRUE(extent->covers(reads(inside)));
  EXPECT_TRUE(extent->covers(reads(loss)));
}

TEST_F(StepExtentTest, HistoriesAreOfWhatNeedsGradients) {
  const auto history = [](const at::Tensor& x) {
    const std::vector<c10::IValue> inputs = {x};
    return history_of(inputs_of(inputs));
  };
  EXPECT_EQ(history(torch::ones({2})), nullptr);
  EXPECT_EQ(history(w), nullptr) << "no operator has made it";
  EXPECT_NE(history(w * 2), nullptr);
  const at::NoGradGuard no_grad;
  EXPECT_EQ(history(w * 2), nullptr);
}

TEST_F(StepExtentTest, CallsOfOtherThreadsAreNotOfTheStep) {
  extent->enter_forward();
  at::Tensor elsewhere;
  std::thread([&] { elsewhere = w * 2; }).join();
  extent->leave_forward();
  EXPECT_FALSE(extent->covers(reads(elsewhere)));
}

TEST_F(StepExtentTest, EndsWhenNothingIsLeftOfItsCalls) {
  extent->enter_forward();
  extent->leave_forward();
  released = true;
  extent->end_if_released();
  EXPECT_EQ(ended, std::optional<bool>(false)) << "no backward pass was";
}

TEST_F(StepExtentTest, OfCallsThatSaveNothingDoesNotEnd) {
  released = true;
  extent->enter_forward();
  extent->leave_forward();
  extent->end_if_released();
  EXPECT_FALSE(ended.has_value());
}

TEST_F(StepExtentTest, DoesNotEndInsideOfACall) {
  extent->enter_forward();
  extent->leave_forward();
  extent->enter_forward();
  released = true;
  extent->end_if_released();
  EXPECT_FALSE(ended.has_value());
}

TEST_F(StepExtentTest, ACallThatWasLeftWithoutAWordIsOver) {
  bool goes_on = true;
  extent->enter_forward([&] { return goes_on; });
  EXPECT_TRUE(extent->covers(records()));
  EXPECT_FALSE(extent->is_between_calls());
  goes_on = false;
  EXPECT_FALSE(extent->covers(records()));
  EXPECT_TRUE(extent->is_between_calls());
}

}  // namespace
}  // namespace remat::test

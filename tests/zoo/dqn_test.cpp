// Deep Q-learning: networks, loss, replay buffer, and what they refuse.
#include "zoo/dqn.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"

namespace remat::zoo {
namespace {

TEST(Dqn, IsOfTheSizeThatIsKnown) {
  EXPECT_EQ(make_dqn({.actions = 4})->parameter_count(), 1'686'180);  // of the paper's network for Breakout
  EXPECT_EQ(make_vector_dqn({.hidden = {16, 8}})->parameter_count(), 4 * 16 + 16 + 16 * 8 + 8 + 8 * 2 + 2);
}

TEST(Dqn, ReadsPixelsAsBytesAndAsFloats) {
  torch::manual_seed(1);
  const auto model = make_dqn({.frames = 2, .height = 36, .width = 44, .hidden = 16, .actions = 3});
  const auto pixels = torch::randint(256, {5, 2, 36, 44}, torch::kByte);
  const auto values = model->forward(pixels);
  EXPECT_EQ(values.sizes(), (at::IntArrayRef{5, 3}));
  EXPECT_TRUE(values.equal(model->forward(pixels.to(torch::kFloat))));
  EXPECT_EQ(best_action(*model, pixels[2]), values[2].argmax().item<int64_t>());
}

TEST(Dqn, ConfigsThatCannotBe) {
  EXPECT_ERROR(make_dqn({.height = 24}), "[dqn] a kernel of 3 does not fit into the 1 x 9 pixels before it");
  EXPECT_ERROR(make_dqn({.convolutions = {{8, 3, 0}}}), "channels, kernel and stride");
  EXPECT_ERROR(make_dqn({.actions = 0}), "must each be 1 or more");
  EXPECT_ERROR(make_vector_dqn({.hidden = {8, 0}}), "must each be 1 or more");
}

/// A network whose values are its weights times the observation.
std::shared_ptr<Model> linear(const std::vector<double>& weights) {
  auto model = make_vector_dqn({.inputs = 1, .hidden = {}});
  const torch::NoGradGuard no_grad;
  model->parameters()[0].copy_(torch::tensor(weights).unsqueeze(1));
  model->parameters()[1].zero_();
  return model;
}

TEST(QLearningLoss, ComparesWithRewardAndTheMostThatComesAfterIt) {
  const auto online = linear({0.5, -2}), target = linear({3, 4});
  const Transitions batch = {torch::tensor({{1.0}, {1.0}}, torch::kFloat), torch::tensor({0, 1}, torch::kLong),
                             torch::tensor({0.25, 1.0}, torch::kFloat), torch::tensor({{0.1}, {7.0}}, torch::kFloat),
                             torch::tensor({0.0, 1.0}, torch::kFloat)};
  const auto loss = q_learning_loss(*online, *target, batch, /*discount=*/0.5);
  // Errors: 0.5 - (0.25 + 0.5 * 0.4) = 0.05, and -2 - 1 = -3 without anything after the end.
  EXPECT_NEAR(loss.item<double>(), (0.5 * 0.05 * 0.05 + (3 - 0.5)) / 2, 1e-6);
  loss.backward();
  EXPECT_NEAR(online->parameters()[0].grad()[0].item<double>(), 0.05 / 2, 1e-6);
  EXPECT_NEAR(online->parameters()[0].grad()[1].item<double>(), -1.0 / 2, 1e-6);
  EXPECT_FALSE(target->parameters()[0].grad().defined());
}

TEST(QLearningLoss, CopiesWeights) {
  const auto from = linear({1, 2}), to = linear({3, 4});
  copy_weights(*from, *to);
  EXPECT_TRUE(to->parameters()[0].equal(from->parameters()[0]));
  EXPECT_FALSE(to->parameters()[0].is_alias_of(from->parameters()[0]));
}

TEST(ReplayBuffer, HoldsTheLatestAndDrawsFromAllOfThem) {
  ReplayBuffer buffer(4, {2}, torch::kByte);
  const auto observation = [](int64_t i) { return torch::full({2}, i, torch::kByte); };
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(buffer.size(), std::min<int64_t>(i, 4));
    buffer.add(observation(i), 10 * i, 0.5 * static_cast<double>(i), observation(i + 1), i % 2 == 1);
  }
  const auto random = at::detail::createCPUGenerator(1);
  const Transitions drawn = buffer.sample(200, random);
  std::vector<int64_t> counts(6);
  for (int64_t row = 0; row < 200; ++row) {
    const auto i = drawn.observation[row][1].item<int64_t>();
    ASSERT_LT(i, 6);
    ++counts[static_cast<size_t>(i)];
    EXPECT_EQ(drawn.action[row].item<int64_t>(), 10 * i);
    EXPECT_EQ(drawn.reward[row].item<double>(), 0.5 * static_cast<double>(i));
    EXPECT_EQ(drawn.next[row][0].item<int64_t>(), i + 1);
    EXPECT_EQ(drawn.terminated[row].item<double>(), static_cast<double>(i % 2));
  }
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(counts[i] > 20, i >= 2) << i;
  EXPECT_FALSE(buffer.sample(200, random).action.equal(drawn.action));
  EXPECT_TRUE(buffer.sample(200, at::detail::createCPUGenerator(1)).action.equal(drawn.action));
}

TEST(ReplayBuffer, RefusesWhatCannotBe) {
  EXPECT_ERROR(ReplayBuffer(0, {2}, torch::kByte), "[replay_buffer] capacity is 0; give 1 or more transitions");
  const ReplayBuffer buffer(4, {2}, torch::kByte);
  EXPECT_ERROR(buffer.sample(1, at::detail::createCPUGenerator(1)), "[replay_buffer] there is no transition to draw");
}

}  // namespace
}  // namespace remat::zoo

// The environments: they follow their equations, are the same for the same seed, and refuse what cannot be.
#include "zoo/environment.h"

#include <cmath>
#include <numbers>
#include <set>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"
#include "zoo/cart_pole.h"
#include "zoo/catch_game.h"

namespace remat::zoo {
namespace {

std::vector<double> numbers(const at::Tensor& observation) {
  const auto doubles = observation.to(torch::kDouble);
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

/// Pushes against where cart and pole lean.
int64_t balancing_action(const at::Tensor& observation) {
  const auto x = numbers(observation);
  return 0.1 * x[0] + 0.3 * x[1] + 3 * x[2] + x[3] > 0 ? 1 : 0;
}

/// Moves the paddle under the ball.
int64_t catching_action(const at::Tensor& observation) {
  const auto frame = observation[1].to(torch::kFloat);
  const auto places = torch::arange(frame.size(1), torch::kFloat);
  const auto middle = [&](const at::Tensor& rows) {
    const auto columns = rows.sum(0);
    return (columns * places).sum().item<float>() / columns.sum().item<float>();
  };
  const float ball = middle(frame.narrow(0, 0, frame.size(0) - 2)),
              paddle = middle(frame.narrow(0, frame.size(0) - 2, 2));
  return ball < paddle - 1 ? 0 : ball > paddle + 1 ? 2 : 1;
}

TEST(CartPole, FollowsTheEquationsOfMotion) {
  const auto environment = make_cart_pole({.seed = 3});
  auto state = numbers(environment->reset(0));
  for (const int64_t action : {1, 1, 0, 1, 0, 0}) {
    // The Lagrangian equations of the paper's appendix, solved for both accelerations as a linear system:
    // total_mass * x'' + m l cos(a) a'' = force + m l sin(a) a'^2;  cos(a) x'' + 4/3 l a'' = g sin(a)
    const double sine = std::sin(state[2]), cosine = std::cos(state[2]), ml = 0.1 * 0.5, total = 1.1;
    const double force = (action == 1 ? 10.0 : -10.0) + ml * sine * state[3] * state[3], weight = 9.8 * sine;
    const double determinant = total * 4.0 / 3.0 * 0.5 - ml * cosine * cosine;
    const double acceleration = (force * 4.0 / 3.0 * 0.5 - ml * cosine * weight) / determinant;
    const double turning = (total * weight - cosine * force) / determinant;
    const std::vector<double> expected = {state[0] + 0.02 * state[1], state[1] + 0.02 * acceleration,
                                          state[2] + 0.02 * state[3], state[3] + 0.02 * turning};
    const auto reaction = environment->step(action);
    state = numbers(reaction.observation);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(state[i], expected[i], 1e-6) << i;
    EXPECT_EQ(reaction.reward, 1);
  }
}

TEST(CartPole, TerminatesWhereThePoleFallsAndIsTruncatedWhereItDoesNot) {
  const auto environment = make_cart_pole({.seed = 1});
  for (uint64_t episode = 0; episode < 5; ++episode) {
    auto observation = environment->reset(episode);
    Reaction reaction;
    int64_t steps = 0;
    do {
      reaction = environment->step(1);
      ++steps;
    } while (!reaction.terminated);
    EXPECT_GE(steps, 7) << episode;
    EXPECT_LE(steps, 12) << episode;
    EXPECT_GT(std::abs(numbers(reaction.observation)[2]), 12 * std::numbers::pi / 180);

    observation = environment->reset(episode);
    for (steps = 1;; ++steps) {
      reaction = environment->step(balancing_action(observation));
      observation = reaction.observation;
      if (reaction.terminated || reaction.truncated) break;
    }
    EXPECT_TRUE(reaction.truncated) << "it fell after " << steps;
    EXPECT_EQ(steps, 500);
  }
}

TEST(CatchGame, PaintsABallAndAPaddleInTwoFrames) {
  const auto environment = make_catch_game({.seed = 2, .size = 12});
  const auto first = environment->reset(0);
  ASSERT_EQ(first.sizes(), at::IntArrayRef(environment->shape()));
  ASSERT_EQ(first.scalar_type(), environment->type());
  EXPECT_TRUE(first[0].equal(first[1]));
  const auto second = environment->step(2).observation;
  EXPECT_TRUE(second[0].equal(first[1]));
  EXPECT_EQ(second[1].eq(255).sum().item<int64_t>(), 2 * 2 + 2 * 6);
  EXPECT_EQ(second[1].eq(0).sum().item<int64_t>(), 12 * 12 - 16);
  const auto bottom = second[1][11];
  EXPECT_TRUE(bottom.eq(255).nonzero().squeeze(1).equal(torch::arange(5, 11)));  // it began at 3
  EXPECT_EQ(second[1].narrow(0, 2, 2).eq(255).sum().item<int64_t>(), 4);         // the ball has fallen by 2
}

TEST(CatchGame, RewardsWhoCatchesTheBallAndThoseAlone) {
  const auto environment = make_catch_game({.seed = 4});
  double still = 0;
  std::set<int64_t> columns;
  for (uint64_t episode = 0; episode < 60; ++episode) {
    auto observation = environment->reset(episode);
    columns.insert(observation[1][0].argmax().item<int64_t>());
    for (int64_t step = 1;; ++step) {
      const auto reaction = environment->step(catching_action(observation));
      observation = reaction.observation;
      EXPECT_EQ(reaction.reward, reaction.terminated ? 1 : 0) << episode;
      EXPECT_EQ(reaction.terminated, step == 11);
      if (reaction.terminated) break;
    }
    environment->reset(episode);
    for (Reaction reaction; !reaction.terminated; still += reaction.reward) reaction = environment->step(1);
  }
  EXPECT_GT(columns.size(), 15u);
  EXPECT_LT(still, 0);  // a paddle that stays in the middle misses most
  EXPECT_GT(still, -60);
}

TEST(Environment, EpisodesAreAFunctionOfSeedAndNumber) {
  const std::function<std::unique_ptr<Environment>(uint64_t)> makers[] = {
      [](uint64_t seed) -> std::unique_ptr<Environment> { return make_cart_pole({.seed = seed}); },
      [](uint64_t seed) -> std::unique_ptr<Environment> { return make_catch_game({.seed = seed}); }};
  for (const auto& make : makers) {
    const auto a = make(5), b = make(5), other = make(6);
    b->reset(3);
    b->step(0);
    EXPECT_TRUE(a->reset(7).equal(b->reset(7)));
    EXPECT_TRUE(a->step(1).observation.equal(b->step(1).observation));
    int64_t same_number = 0, same_seed = 0;
    const auto seventh = a->reset(7);
    for (uint64_t i = 0; i < 20; ++i) {
      same_number += a->reset(i).equal(other->reset(i)) ? 1 : 0;
      same_seed += a->reset(i + 20).equal(seventh) ? 1 : 0;
    }
    EXPECT_LT(same_number, 10);
    EXPECT_LT(same_seed, 10);
  }
}

TEST(Environment, RefusesStepsOutsideOfEpisodesAndActionsThatAreNot) {
  const auto environment = make_catch_game({.size = 12});
  EXPECT_ERROR(environment->step(0), "[environment] no episode is in progress; call reset() before step()");
  environment->reset(0);
  EXPECT_ERROR(environment->step(3), "[environment] there is no action 3; give 0 to 2");
  EXPECT_ERROR(environment->step(-1), "there is no action -1");
  for (int i = 0; i < 5; ++i) environment->step(0);
  EXPECT_ERROR(environment->step(0), "no episode is in progress");
}

TEST(Environment, ConfigsThatCannotBe) {
  EXPECT_ERROR(make_catch_game({.size = 10}), "[catch_game] size is 10; give an even number from 12 on");
  EXPECT_ERROR(make_catch_game({.size = 13}), "size is 13");
  EXPECT_ERROR(make_cart_pole({.longest = 0}), "[cart_pole] longest is 0; give 1 or more steps");
}

}  // namespace
}  // namespace remat::zoo

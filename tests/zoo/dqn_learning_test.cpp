// A Q-network learns to catch the ball, and learns exactly the same within a budget.
#include <random>

#include "support/compare.h"
#include "zoo/catch_game.h"
#include "zoo/dqn.h"

namespace remat::test {
namespace {

constexpr int64_t kUpdates = 2000;
constexpr int64_t kBatch = 32;
constexpr int64_t kStepsPerUpdate = 2;
constexpr int64_t kFirstSteps = 500;  // of the environment, before the first update
constexpr int64_t kCopyEvery = 50;    // updates after which the target network is the online network again
constexpr double kDiscount = 0.95;
constexpr int64_t kExploring = 1000;  // updates in which random actions become few
constexpr double kLeastRandom = 0.05;

struct Learned {
  double untrained_return = 0, mean_return = 0;  ///< of 100 other episodes, without random actions
  Outcome outcome;                               ///< the weights
  StepReport report;                             ///< of the last step, where there is a session
};

std::shared_ptr<zoo::Model> make_network() {
  return zoo::make_dqn({.frames = 2,
                        .height = 24,
                        .width = 24,
                        .convolutions = {{16, 6, 6}, {32, 2, 1}, {32, 1, 1}},
                        .hidden = 128,
                        .actions = 3});
}

class Learner {
 public:
  explicit Learner(Session* session)
      : session_(session),
        environment_(zoo::make_catch_game({.seed = 1})),
        buffer_(4000, environment_->shape(), environment_->type()),
        optimizer_(online_->parameters(), torch::optim::AdamOptions(1e-3)) {
    zoo::copy_weights(*online_, *target_);
    for (auto& parameter : online_->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
  }

  Learned learn() {
    Learned learned;
    learned.untrained_return = mean_return();
    observation_ = environment_->reset(episode_);
    for (int64_t i = 0; i < kFirstSteps; ++i) act(1);
    for (int64_t update = 0; update < kUpdates; ++update) {
      const double explored = std::min(1.0, static_cast<double>(update) / static_cast<double>(kExploring));
      for (int64_t i = 0; i < kStepsPerUpdate; ++i) act(1 - (1 - kLeastRandom) * explored);
      if (update % kCopyEvery == 0) zoo::copy_weights(*online_, *target_);
      train();
    }
    learned.mean_return = mean_return();
    for (const auto& parameter : online_->named_parameters()) learned.outcome.add(parameter.key(), parameter.value());
    if (session_ != nullptr) learned.report = session_->report();
    return learned;
  }

 private:
  /// A step of the environment, with a random action in a share of `random`.
  void act(double random) {
    const bool explores = zoo::uniform(random_, 0, 1) < random;
    const int64_t action =
        explores ? static_cast<int64_t>(zoo::uniform(random_, 0, 3)) : zoo::best_action(*online_, observation_);
    auto reaction = environment_->step(action);
    buffer_.add(observation_, action, reaction.reward, reaction.observation, reaction.terminated);
    observation_ = reaction.terminated ? environment_->reset(++episode_) : reaction.observation;
  }

  void train() {
    const auto batch = buffer_.sample(kBatch, draws_);
    optimizer_.zero_grad(/*set_to_none=*/false);
    {
      std::optional<Step> step;
      if (session_ != nullptr) step.emplace(session_->step());
      zoo::q_learning_loss(*online_, *target_, batch, kDiscount).backward();
    }
    optimizer_.step();
  }

  double mean_return() {
    constexpr uint64_t kEpisodes = 100;
    double sum = 0;
    for (uint64_t i = 0; i < kEpisodes; ++i) {
      observation_ = environment_->reset(1'000'000 + i);
      for (zoo::Reaction reaction; !reaction.terminated; sum += reaction.reward) {
        reaction = environment_->step(zoo::best_action(*online_, observation_));
        observation_ = reaction.observation;
      }
    }
    return sum / static_cast<double>(kEpisodes);
  }

  Session* session_;
  std::unique_ptr<zoo::Environment> environment_;
  zoo::ReplayBuffer buffer_;
  std::shared_ptr<zoo::Model> online_ = make_network(), target_ = make_network();
  torch::optim::Adam optimizer_;
  std::mt19937_64 random_{2};
  at::Generator draws_ = at::detail::createCPUGenerator(3);
  at::Tensor observation_;
  uint64_t episode_ = 0;
};

TEST(DqnLearning, CatchesTheBallAndIsTheSameWithinABudget) {
  memory::start_accounting();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // tensors this small gain nothing from more
  torch::manual_seed(4);
  const Learned plain = Learner(nullptr).learn();
  EXPECT_LT(plain.untrained_return, 0);  // the least is -1
  EXPECT_GT(plain.mean_return, 0.5);     // the most is 1; 0.76 to 0.98 with other seeds

  torch::manual_seed(4);
  Session session({.budget = "60%"});
  const Learned within = Learner(&session).learn();
  EXPECT_EQ(plain.mean_return, within.mean_return);
  expect_same_bits(plain.outcome, within.outcome, "weights");
  EXPECT_GT(within.report.operators_replayed, 0);
  EXPECT_LE(within.report.activation_peak_bytes(), within.report.plain_activation_peak_bytes() * 60 / 100);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace remat::test

// zoo/dqn_agent.h -- an agent that plays a game, and learns from its experience by deep Q-learning (zoo/dqn.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "zoo/dqn.h"
#include "zoo/environment.h"
#include "zoo/replay_buffer.h"

namespace remat::zoo {

struct DqnAgentConfig {
  uint64_t seed = 0;             ///< of exploration, and of what is drawn from experience
  int64_t batch = 32;            ///< transitions in an update
  int64_t capacity = 4000;       ///< transitions that are remembered
  int64_t steps_per_update = 2;  ///< of the environment
  int64_t first_steps = 500;     ///< of the environment, at random, before the first update
  int64_t copy_every = 50;       ///< updates after which the target network is the online network again
  double discount = 0.95;
  int64_t exploring = 1000;    ///< updates in which random actions become few
  double least_random = 0.05;  ///< the share of actions that are random from then on
};

/// All that it does is a function of its config, the seed of its environment and the weights that it gets. What updates
/// the weights is the caller's: for each update experience(), the gradient of loss(), and a step of an optimizer.
/// Not thread-safe.
class DqnAgent {
 public:
  /// `online` learns; `target`, a model of the same config, gets its weights.
  DqnAgent(std::unique_ptr<Environment> environment, std::shared_ptr<Model> online, std::shared_ptr<Model> target,
           const DqnAgentConfig& config);

  /// Plays on, and draws what the next update is to learn from.
  Transitions experience();
  at::Tensor loss(const Transitions& batch) const;

  /// Sums of rewards of the episodes that have ended, in order.
  const std::vector<double>& returns() const { return returns_; }
  /// The mean return of `episodes` others, without random actions. The episode in progress goes on afterwards.
  double mean_return(int64_t episodes);

  /// All that what it does next depends on, but for the config and the environment's seed.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Goes on where an agent of the same config and environment called save().
  void load(torch::serialize::InputArchive& archive);

  Model& online() { return *online_; }
  const Model& online() const { return *online_; }
  int64_t batch() const { return config_.batch; }

 private:
  /// A step of the environment, with a random action in a share of `random`.
  void act(double random);
  void begin_episode();
  /// Takes the actions of the episode in progress again: nothing else is to be known of the environment.
  void return_to_episode();

  std::unique_ptr<Environment> environment_;
  std::shared_ptr<Model> online_, target_;
  DqnAgentConfig config_;
  ReplayBuffer buffer_;
  std::mt19937_64 random_;
  at::Generator draws_;
  at::Tensor observation_;        ///< undefined: no episode is in progress
  uint64_t episode_ = 0;          ///< the one that is begun next
  std::vector<int64_t> actions_;  ///< of the episode in progress
  double return_ = 0;             ///< of the episode in progress
  int64_t updates_ = 0;
  std::vector<double> returns_;
};

/// What an agent can play.
struct GameInfo {
  std::string_view name;
  double best_return = 0;
  std::string_view description;
};
std::vector<GameInfo> list_games();

/// An agent for a game of the list: with its environment, networks whose weights the default generator draws, and a
/// config that is known to learn it. `batch`: transitions in an update; 0: the usual number. Throws remat::Error for a
/// name that is not in the list.
DqnAgent make_agent(std::string_view game, uint64_t seed, int64_t batch = 0);

}  // namespace remat::zoo

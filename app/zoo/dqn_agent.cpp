#include "zoo/dqn_agent.h"

#include <algorithm>
#include <locale>
#include <sstream>
#include <string>
#include <utility>

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/cart_pole.h"
#include "zoo/catch_game.h"

namespace remat::zoo {
namespace {

constexpr uint64_t kFirstJudged = 1'000'000'000;  // episodes that are not played in training

}  // namespace

DqnAgent::DqnAgent(std::unique_ptr<Environment> environment, std::shared_ptr<Model> online,
                   std::shared_ptr<Model> target, const DqnAgentConfig& config)
    : environment_(std::move(environment)),
      online_(std::move(online)),
      target_(std::move(target)),
      config_(config),
      buffer_(config.capacity, environment_->shape(), environment_->type()),
      random_(config.seed),
      draws_(at::detail::createCPUGenerator(config.seed)) {}

Transitions DqnAgent::experience() {
  if (updates_ == 0) {
    for (int64_t i = 0; i < config_.first_steps; ++i) act(1);
  }
  const double explored = std::min(1.0, static_cast<double>(updates_) / static_cast<double>(config_.exploring));
  for (int64_t i = 0; i < config_.steps_per_update; ++i) act(1 - (1 - config_.least_random) * explored);
  if (updates_++ % config_.copy_every == 0) copy_weights(*online_, *target_);
  return buffer_.sample(config_.batch, draws_);
}

at::Tensor DqnAgent::loss(const Transitions& batch) const {
  return q_learning_loss(*online_, *target_, batch, config_.discount);
}

void DqnAgent::begin_episode() {
  observation_ = environment_->reset(episode_++);
  actions_.clear();
  return_ = 0;
}

void DqnAgent::return_to_episode() {
  observation_ = environment_->reset(episode_ - 1);
  for (const int64_t action : actions_) observation_ = environment_->step(action).observation;
}

void DqnAgent::act(double random) {
  if (!observation_.defined()) begin_episode();
  const bool explores = uniform(random_, 0, 1) < random;
  const int64_t action = explores
                             ? static_cast<int64_t>(uniform(random_, 0, static_cast<double>(environment_->actions())))
                             : best_action(*online_, observation_);
  const auto reaction = environment_->step(action);
  actions_.push_back(action);
  buffer_.add(observation_, action, reaction.reward, reaction.observation, reaction.terminated);
  return_ += reaction.reward;
  observation_ = reaction.observation;
  if (!reaction.terminated && !reaction.truncated) return;
  returns_.push_back(return_);
  observation_.reset();
}

double DqnAgent::mean_return(int64_t episodes) {
  double sum = 0;
  for (int64_t i = 0; i < episodes; ++i) {
    auto observation = environment_->reset(kFirstJudged + static_cast<uint64_t>(i));
    for (Reaction reaction; !reaction.terminated && !reaction.truncated; sum += reaction.reward) {
      reaction = environment_->step(best_action(*online_, observation));
      observation = reaction.observation;
    }
  }
  if (observation_.defined()) return_to_episode();
  return sum / static_cast<double>(episodes);
}

void DqnAgent::save(torch::serialize::OutputArchive& archive) const {
  torch::serialize::OutputArchive online, target, buffer;
  online_->save(online);
  target_->save(target);
  buffer_.save(buffer);
  archive.write("online", online);
  archive.write("target", target);
  archive.write("buffer", buffer);
  std::ostringstream random;
  random.imbue(std::locale::classic());
  random << random_;
  archive.write("random", c10::IValue(random.str()));
  archive.write("draws", draws_.get_state(), /*is_buffer=*/true);
  archive.write("in_episode", c10::IValue(observation_.defined()));
  archive.write("episode", c10::IValue(static_cast<int64_t>(episode_)));
  archive.write("actions", c10::IValue(actions_));
  archive.write("episode_return", c10::IValue(return_));
  archive.write("updates", c10::IValue(updates_));
  archive.write("returns", c10::IValue(returns_));
}

void DqnAgent::load(torch::serialize::InputArchive& archive) {
  torch::serialize::InputArchive online, target, buffer;
  archive.read("online", online);
  archive.read("target", target);
  archive.read("buffer", buffer);
  online_->load(online);
  target_->load(target);
  buffer_.load(buffer);
  const auto value = [&](const std::string& name) {
    c10::IValue read;
    archive.read(name, read);
    return read;
  };
  std::istringstream random(value("random").toStringRef());
  random.imbue(std::locale::classic());
  random >> random_;
  at::Tensor draws;
  archive.read("draws", draws, /*is_buffer=*/true);
  draws_.set_state(draws);
  episode_ = static_cast<uint64_t>(value("episode").toInt());
  actions_ = value("actions").toIntVector();
  return_ = value("episode_return").toDouble();
  updates_ = value("updates").toInt();
  returns_ = value("returns").toDoubleVector();
  observation_.reset();
  if (value("in_episode").toBool()) return_to_episode();
}

namespace {

DqnAgent make_cart_pole_agent(uint64_t seed, int64_t batch) {
  // Deep and narrow: of two wide layers there is nothing that a backward pass could do without.
  const VectorDqnConfig network = {.hidden = std::vector<int64_t>(6, 64)};
  const DqnAgentConfig config = {.seed = seed,
                                 .batch = batch > 0 ? batch : 128,
                                 .capacity = 50'000,
                                 .steps_per_update = 4,
                                 .first_steps = 1000,
                                 .copy_every = 50,
                                 .discount = 0.98,
                                 .exploring = 3000,
                                 .least_random = 0.05};
  return {make_cart_pole({.seed = seed}), make_vector_dqn(network), make_vector_dqn(network), config};
}

DqnAgent make_catch_agent(uint64_t seed, int64_t batch) {
  const DqnConfig network = {.frames = 2,
                             .height = 24,
                             .width = 24,
                             .convolutions = {{16, 6, 6}, {32, 2, 1}, {32, 1, 1}},
                             .hidden = 128,
                             .actions = 3};
  DqnAgentConfig config = {.seed = seed};
  if (batch > 0) config.batch = batch;
  return {make_catch_game({.seed = seed}), make_dqn(network), make_dqn(network), config};
}

struct Game {
  GameInfo info;
  DqnAgent (*make)(uint64_t seed, int64_t batch);
};

constexpr Game kGames[] = {
    {{"cart-pole", 500, "balance a pole on a cart, by 4 numbers"}, make_cart_pole_agent},
    {{"catch", 1, "catch a falling ball with a paddle, by 24 x 24 pixels"}, make_catch_agent},
};

}  // namespace

std::vector<GameInfo> list_games() {
  std::vector<GameInfo> games;
  for (const Game& game : kGames) games.push_back(game.info);
  return games;
}

DqnAgent make_agent(std::string_view name, uint64_t seed, int64_t batch) {
  std::string names;
  for (const Game& game : kGames) {
    if (game.info.name == name) return game.make(seed, batch);
    names += (names.empty() ? "" : ", ") + std::string(game.info.name);
  }
  throw Error("[make_agent] there is no game '" + std::string(name) + "'; there are " + names);
}

}  // namespace remat::zoo

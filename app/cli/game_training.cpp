#include "cli/game_training.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <torch/torch.h>

#include <remat/memory.h>
#include <remat/session.h>

#include "cli/training_state.h"
#include "zoo/dqn_agent.h"

namespace remat::cli {

struct GameTraining::Impl {
  TrainSettings settings;
  zoo::DqnAgent agent;
  torch::optim::AdamW optimizer;
  std::optional<Session> session;
  std::optional<zoo::Transitions> drawn;  ///< for the update that comes
  int64_t steps_done = 0;

  Impl(const TrainSettings& asked, const std::optional<Budget>& budget)
      : settings(asked),
        agent(zoo::make_agent(asked.game, asked.seed, asked.batch)),
        optimizer(agent.online().parameters(), torch::optim::AdamWOptions(asked.lr).weight_decay(asked.weight_decay)) {
    // Kept, as large as the activations of networks this small: a percentage is a share of these alone.
    for (auto& parameter : agent.online().parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
    if (budget) session.emplace(SessionOptions{.budget = *budget, .planner = settings.planner});
  }

  void learn(StepResult& result) {
    const bool holds = session && session->budget_bytes();
    std::optional<Step> step;
    if (session) step.emplace(session->step());
    auto loss = agent.loss(*drawn);
    loss.backward();
    result.loss = loss.item<float>();
    loss.reset();
    if (!step) return;
    result.report = step->end();
    if (holds) result.budget_bytes = result.report->budget_bytes;
  }

  void update() {
    const auto parameters = agent.online().parameters();
    if (settings.clip > 0) torch::nn::utils::clip_grad_norm_(parameters, settings.clip);
    optimizer.step();
    optimizer.zero_grad(/*set_to_none=*/false);
  }

  StepResult run_step() {
    if (!drawn) drawn = agent.experience();
    StepResult result;
    result.step = steps_done + 1;
    const auto start = std::chrono::steady_clock::now();
    memory::reset_peak();
    result.baseline_bytes = memory::current();
    for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate(settings, result.step));
    try {
      learn(result);
    } catch (...) {
      optimizer.zero_grad(/*set_to_none=*/false);
      throw;
    }
    update();
    drawn.reset();
    ++steps_done;
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.peak_bytes = memory::peak();
    if (result.report) result.peak_bytes = std::max(result.peak_bytes, result.report->peak_bytes);
    return result;
  }
};

GameTraining::GameTraining(const TrainSettings& settings, const std::optional<Budget>& budget) {
  memory::start_accounting();  // before the first tensor: parameters count
  torch::manual_seed(settings.seed);
  impl_ = std::make_unique<Impl>(settings, budget);
}

GameTraining::~GameTraining() = default;

StepResult GameTraining::step() { return impl_->run_step(); }

void GameTraining::save(const std::string& path, const nlohmann::json& about) const {
  CheckpointWriter file(path, about);
  save_archive(
      [&](torch::serialize::OutputArchive& archive) {
        torch::serialize::OutputArchive agent, drawn;
        impl_->agent.save(agent);
        archive.write("agent", agent);
        if (!impl_->drawn) return;
        zoo::save(*impl_->drawn, drawn);
        archive.write("drawn", drawn);
      },
      impl_->optimizer, impl_->steps_done, [&](const void* bytes, size_t size) { file.append(bytes, size); });
  file.commit();
}

void GameTraining::load(const CheckpointReader& checkpoint) {
  impl_->steps_done = load_archive(
      [&](torch::serialize::InputArchive& archive) {
        torch::serialize::InputArchive agent, drawn;
        archive.read("agent", agent);
        impl_->agent.load(agent);
        impl_->drawn.reset();
        if (archive.try_read("drawn", drawn)) impl_->drawn = zoo::load_transitions(drawn);
      },
      impl_->optimizer, payload_of(checkpoint));
  check_finite(trained_parameters(impl_->agent.online()), impl_->settings.checkpoint);
}

int64_t GameTraining::steps_done() const { return impl_->steps_done; }
ParameterCount GameTraining::parameter_count() const {
  const int64_t count = impl_->agent.online().parameter_count();
  return {count, count};
}
int64_t GameTraining::current_bytes() const { return memory::current(); }
int64_t GameTraining::batch() const { return impl_->agent.batch(); }
const std::vector<double>& GameTraining::returns() const { return impl_->agent.returns(); }
double GameTraining::mean_return(int64_t episodes) { return impl_->agent.mean_return(episodes); }

}  // namespace remat::cli

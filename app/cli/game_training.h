// cli/game_training.h -- an agent that learns a game (zoo/dqn_agent.h), update by update, plain or within a budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remat/budget.h>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_file.h"
#include "cli/settings.h"
#include "cli/training.h"

namespace remat::cli {

/// A step is an update of the agent's network: the play that comes before it is outside of its time and of the budget.
class GameTraining final : public Training {
 public:
  /// `budget` nullopt: plain, without remat. All depends on the settings alone: the default generator is seeded here.
  /// `settings.batch` 0: the game's usual one.
  GameTraining(const TrainSettings& settings, const std::optional<Budget>& budget);
  ~GameTraining() override;

  /// When it throws, the update can be tried again, with what was drawn for it.
  StepResult step() override;
  /// Saves everything that the next step depends on at `path`, with what it is said to be `about`. Throws Error where
  /// it cannot be written: then what was at the path is there still.
  void save(const std::string& path, const nlohmann::json& about) const;
  /// Continues from a checkpoint of an equal training.
  void load(const CheckpointReader& checkpoint);
  int64_t steps_done() const override;
  ParameterCount parameter_count() const override;
  int64_t current_bytes() const override;

  /// Transitions in an update.
  int64_t batch() const;
  /// Of the episodes that have ended, in order.
  const std::vector<double>& returns() const;
  /// The mean return of `episodes` others, without random actions.
  double mean_return(int64_t episodes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat::cli

// cli/training_task.h -- what a training is made from, in this process or in others.
#pragma once

#include <memory>
#include <optional>

#include <remat/budget.h>

#include "cli/checkpoint_file.h"
#include "cli/rank_place.h"
#include "cli/settings.h"
#include "cli/trainer.h"
#include "cli/training_data.h"

namespace remat::cli {

/// As Trainer's arguments. What it refers to must outlive the training.
struct TrainingTask {
  const TrainSettings& settings;
  const TrainingData& data;
  std::optional<Budget> budget;
  const TrainingData* held_out = nullptr;
  const CheckpointReader* checkpoint = nullptr;  ///< that it continues from; null: it begins
  bool fingerprints = false;                     ///< in every step
};

/// Throws what Trainer and Trainer::load() throw.
std::unique_ptr<Trainer> make_trainer(const TrainingTask& task, const std::optional<RankPlace>& place = std::nullopt);

}  // namespace remat::cli

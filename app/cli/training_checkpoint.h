// cli/training_checkpoint.h -- the checkpoints of `remat train`: what they say of themselves, and where they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/checkpoint_lock.h"
#include "cli/settings.h"
#include "cli/training_data.h"

namespace remat::cli {

/// Everything that must agree for a resumed training to give the same bits, and the step. `model`: model_contents() of
/// its directory, from when the training began; empty where it has none.
nlohmann::json about_checkpoint(const TrainSettings& settings, const TrainingData& data, const std::string& model,
                                int64_t step);

/// The same of a training that plays a game.
nlohmann::json about_checkpoint(const TrainSettings& settings, int64_t step);

/// Throws Error where a checkpoint that says `theirs` of itself is of another training.
void check_continues(const nlohmann::json& theirs, const TrainSettings& settings);
void check_continues(const nlohmann::json& theirs, const TrainSettings& settings, const TrainingData& data,
                     const std::string& model);

/// A place for the state of a training that named none: never one where something is, or where another training is
/// about to save; `lock` holds it.
std::string unused_checkpoint_path(std::optional<CheckpointLock>& lock);

/// The command line that continues the training from `path`.
std::string how_to_resume(const TrainSettings& settings, const std::string& path);

}  // namespace remat::cli

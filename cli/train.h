// cli/train.h -- `remat train`.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "cli/settings.h"
#include "cli/trainer.h"

namespace remat::cli {

/// Trains, shows progress on standard output, saves checkpoints. Returns the exit code: 0, or 128 + a signal's number.
int run_train(const TrainSettings& settings);

/// What steps took, as a table on standard output.
void print_summary(const TrainSettings& settings, const std::vector<StepResult>& results);
/// Settings and all steps.
nlohmann::json results_json(const TrainSettings& settings, const Training& training,
                            const std::vector<StepResult>& results);

}  // namespace remat::cli

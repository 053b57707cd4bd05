// cli/train.h -- `remat train`.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Trains, shows progress on standard output, saves checkpoints. Returns the exit code: 0, or 128 + a signal's number.
int run_train(const TrainSettings& settings);

}  // namespace remat::cli

// cli/train_game.h -- `remat train --task rl`.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Lets an agent learn a game and prints what it reached. Returns the exit code, as run_train() does; nothing is saved.
int run_game(const TrainSettings& settings);

}  // namespace remat::cli

// cli/train_game.h -- `remat train --task rl`.
#pragma once

#include <optional>

#include "cli/checkpoint_lock.h"
#include "cli/settings.h"

namespace remat::cli {

/// Lets an agent learn a game and prints what it reached. `lock` holds the checkpoint's path, or that of one that a
/// signal makes necessary. Returns the exit code, as run_train() does.
int run_game(const TrainSettings& asked, std::optional<CheckpointLock>& lock);

}  // namespace remat::cli

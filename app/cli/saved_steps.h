// cli/saved_steps.h -- the steps of a training whose state is saved between them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "cli/training.h"

namespace remat::cli {

/// Writes the training's state to a path. Throws Error where that fails.
using SaveState = std::function<void(const std::string& path)>;

/// run_steps() (cli/training_loop.h), with the state saved in `settings.checkpoint`, if it names a file, as often as
/// `settings.checkpoint_every` says, and where a step fails after others were taken; not after the last step. A state
/// that cannot be saved between steps ends nothing, but is told on standard error.
void run_saved_steps(Training& training, const TrainSettings& settings, const std::string& label,
                     std::vector<StepResult>& results, const SaveState& save,
                     const std::function<void(const StepResult&)>& after_step);

}  // namespace remat::cli

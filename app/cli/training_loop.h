// cli/training_loop.h -- steps, one after the other, with progress, until they are done or a signal asks to stop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "cli/training.h"

namespace remat::cli {

/// Runs `training` up to step `settings.steps`, or to the end of the step in which a signal arrives. Appends every
/// result to `results`, also where a step throws. `after_step` runs after each one. Throws Error for a loss that is not
/// a number: nothing after it would mean anything.
void run_steps(Training& training, const TrainSettings& settings, const std::string& label,
               std::vector<StepResult>& results, const std::function<void(const StepResult&)>& after_step = {});

/// Throws Error for a loss that is not a number, which --lr is not blamed for in the first step.
void check_loss(const StepResult& result);

/// The middle of the steps' times without the first step's, which is spent on warming up.
double median_seconds(const std::vector<StepResult>& results);

/// One step as a JSON object.
nlohmann::json to_json(const StepResult& result);

}  // namespace remat::cli

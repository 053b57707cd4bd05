// cli/recording.h -- runs training steps of the zoo, and hands over the graph of what they did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <remat/run.h>

#include "cli/settings.h"

namespace remat::cli {

struct RecordableModel {
  std::string name;
  int64_t batch = 0;  ///< examples per step, where nothing else is asked for
  std::string description;
  bool ends_in_head = false;  ///< so that its loss can be made in tiles
};

/// The models whose steps can be recorded.
std::vector<RecordableModel> recordable_models();

struct Recording {
  Run run;  ///< the step and its layers; times are medians: of operators over the steps that were traced, of the step
            ///< over all
  int64_t batch = 0;         ///< examples per step
  int64_t values_saved = 0;  ///< by autograd, each once
};

/// Runs forward and backward `settings.steps` times. Gradients exist before the first step, so that the peak above the
/// baseline is that of activations. Throws Error for a model or a budget that cannot be, BudgetError where the steps do
/// not fit it.
Recording record_steps(const RecordSettings& settings);

}  // namespace remat::cli

// cli/train_contradictions.h -- options of `remat train` that rule one another out.
#pragma once

#include "cli/given_options.h"

namespace remat::cli {

/// Throws UsageError where options contradict one another or have no effect; it names them, and the config file where
/// one of them stands there.
void refuse_contradictions(const TrainOptions& options, const TrainSettings& settings);

}  // namespace remat::cli

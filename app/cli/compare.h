// cli/compare.h -- `remat compare`: the same training plain and within a budget.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Trains twice, prints a table and says whether every bit is the same. Returns the exit code: 0 only where bits are
/// equal and the peak is within the budget.
int run_compare(const TrainSettings& settings);

}  // namespace remat::cli

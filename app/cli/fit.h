// cli/fit.h -- `remat fit`.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Finds what fits, and prints it. Throws BudgetError where nothing does.
void run_fit(const FitSettings& settings);

}  // namespace remat::cli

// cli/sweep.h -- `remat sweep`: every planner, every budget, every number of checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/settings.h"

namespace remat::cli {

/// The lists of the settings; numbers ascending, each once.
struct SweepLists {
  std::vector<std::string> budgets, planners;
  std::vector<int64_t> checkpoints, depths;
};
SweepLists sweep_lists(const SweepSettings& settings);

/// Writes what is found as it is found, so that an interrupt loses nothing. Throws BudgetError where budgets were asked
/// for and no planner has a plan for any of them, and the first error of a measurement where none came to its end; then
/// too all is written.
void run_sweep(const SweepSettings& settings);

}  // namespace remat::cli

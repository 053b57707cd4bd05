// cli/report.h -- `remat report`. Needs no torch.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Reads a run or a graph, plans it where that is asked for or no plan is there, writes the files asked for, and prints
/// what they show. Throws Error for files that are no such thing, BudgetError where no plan fits.
void run_report(const ReportSettings& settings);

}  // namespace remat::cli

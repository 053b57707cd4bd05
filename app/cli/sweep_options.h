// cli/sweep_options.h -- the options of `remat sweep`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/settings.h"

namespace CLI {
class App;
}

namespace remat::cli {

void add_sweep_options(CLI::App& app, SweepSettings& settings);

/// Throws UsageError for options that are wrong together.
void check_sweep_options(const SweepSettings& settings);

}  // namespace remat::cli

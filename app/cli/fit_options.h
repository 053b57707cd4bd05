// cli/fit_options.h -- the options of `remat fit`.
#pragma once

#include "cli/settings.h"

namespace CLI {
class App;
}

namespace remat::cli {

void add_fit_options(CLI::App& app, FitSettings& settings);

/// Throws UsageError for options that are wrong together.
void check_fit_options(const FitSettings& settings);

}  // namespace remat::cli

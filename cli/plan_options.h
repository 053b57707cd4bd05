// cli/plan_options.h -- the options of `remat record` and `remat plan`.
#pragma once

#include "cli/settings.h"

namespace CLI {
class App;
}

namespace remat::cli {

/// The app refers to `settings`.
void add_record_options(CLI::App& app, RecordSettings& settings);
void add_plan_options(CLI::App& app, PlanSettings& settings);

/// Throws UsageError where options make no sense together.
void check_plan_options(const PlanSettings& settings);

}  // namespace remat::cli

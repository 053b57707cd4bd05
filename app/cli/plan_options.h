// cli/plan_options.h -- the options of `remat record`, `remat plan` and `remat report`.
#pragma once

#include "cli/settings.h"

namespace CLI {
class App;
}

namespace remat::cli {

/// The app refers to `settings`.
void add_record_options(CLI::App& app, RecordSettings& settings);
void add_plan_options(CLI::App& app, PlanSettings& settings);
void add_report_options(CLI::App& app, ReportSettings& settings);

/// Throws UsageError where options make no sense together.
void check_record_options(const RecordSettings& settings);
void check_plan_options(const PlanSettings& settings);
void check_report_options(const ReportSettings& settings);

}  // namespace remat::cli

// cli/export_options.h -- the options of `remat export`.
#pragma once

#include "cli/export.h"

namespace CLI {
class App;
}

namespace remat::cli {

/// The app refers to `settings`.
void add_export_options(CLI::App& app, ExportSettings& settings);

}  // namespace remat::cli

// cli/config_arguments.h -- a JSON file that stands for options of the command line.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

/// The file {"layers": 12, "plain": true} as "--layers=12 --plain=true": the same checks and messages as on the command
/// line. Throws UsageError.
std::vector<std::string> config_arguments(const std::string& path);

}  // namespace remat::cli

// cli/json_file.h -- the results of a run as a JSON file.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace remat::cli {

/// Throws Error unless a file could be written at `path` now: called before training, not after. An empty path is fine.
void check_json_path(const std::string& path);

/// Writes `value`; what was at `path` before stays if that fails. Does nothing for an empty path.
void write_json(const std::string& path, const nlohmann::json& value);

}  // namespace remat::cli

#include "cli/json_file.h"

#include "cli/output_file.h"

namespace remat::cli {

void check_json_path(const std::string& path) { check_output_path(path, "json"); }

void write_json(const std::string& path, const nlohmann::json& value) {
  if (!path.empty()) write_output(path, value.dump(1) + '\n', "json");
}

}  // namespace remat::cli

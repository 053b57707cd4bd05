#include "cli/config_arguments.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/options.h"

namespace remat::cli {

std::vector<std::string> config_arguments(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UsageError("[config] '" + path + "' is a directory; give a file");
  std::ifstream file(path);
  if (!file) throw UsageError("[config] cannot read '" + path + "'; check the path");
  std::set<std::string> names;
  std::string named_twice;
  const auto on_event = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& name) {
    if (event != nlohmann::json::parse_event_t::key || depth != 1) return true;
    if (!names.insert(name.get<std::string>()).second) named_twice = name.get<std::string>();
    return true;
  };
  const auto json = nlohmann::json::parse(file, on_event, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!json.is_object()) {
    throw UsageError("[config] '" + path + "' is not a JSON object, or has a number that is too large; write " +
                     "{\"layers\": 12, ...}");
  }
  if (!named_twice.empty()) {
    throw UsageError("[config] '" + named_twice + "' stands twice in '" + path + "'; keep one of them");
  }
  std::vector<std::string> arguments;
  for (const auto& [name, value] : json.items()) {
    if (name == "config") throw UsageError("[config] '" + path + "' names another config file; put its options here");
    if (value.is_structured() || value.is_null()) {
      throw UsageError("[config] '" + name + "' in '" + path + "' must be a string, a number, true or false; mend it");
    }
    arguments.push_back("--" + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return arguments;
}

}  // namespace remat::cli

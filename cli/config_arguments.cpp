#include "cli/config_arguments.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/options.h"

namespace remat::cli {
namespace {

constexpr auto kExample = "write {\"layers\": 12, ...}";

}  // namespace

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
  const std::string text(std::istreambuf_iterator<char>(file), {});
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text, on_event, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const nlohmann::json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    throw UsageError("[config] '" + path + "' line " + std::to_string(1 + std::count(text.begin(), end, '\n')) +
                     " is not JSON; " + kExample);
  } catch (const nlohmann::json::exception&) {
    throw UsageError("[config] '" + path + "' has a number that is too large; " + kExample);
  }
  if (!json.is_object()) throw UsageError("[config] '" + path + "' is not a JSON object; " + kExample);
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

#include "cli/config_arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/input_file.h"
#include "cli/printable.h"
#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

constexpr auto kExample = "write {\"layers\": 12, ...}";
constexpr int64_t kMostBytes = int64_t{1} << 24;

std::string read_config(const std::string& path) {
  try {
    return read_input(path, {"config", "give a file with a JSON object of options", kMostBytes});
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// Options are texts that end at a NUL, as messages are.
void check_no_nul(const std::string& path, const std::string& name, const std::string& text) {
  if (text.find('\0') == std::string::npos) return;
  throw UsageError("[config] '" + printable(name) + "' in '" + path +
                   "' has a NUL character (\\u0000), which no option can; mend it");
}

}  // namespace

std::vector<std::string> config_arguments(const std::string& path) {
  const std::string text = read_config(path);
  std::set<std::string> names;
  std::string named_twice;
  const auto on_event = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& name) {
    if (event != nlohmann::json::parse_event_t::key || depth != 1) return true;
    if (!names.insert(name.get<std::string>()).second) named_twice = name.get<std::string>();
    return true;
  };
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
    throw UsageError("[config] '" + printable(named_twice) + "' stands twice in '" + path + "'; keep one of them");
  }
  std::vector<std::string> arguments;
  for (const auto& [name, value] : json.items()) {
    if (name == "config") throw UsageError("[config] '" + path + "' names another config file; put its options here");
    if (value.is_structured() || value.is_null()) {
      throw UsageError("[config] '" + name + "' in '" + path + "' must be a string, a number, true or false; mend it");
    }
    check_no_nul(path, name, name);
    if (value.is_string()) check_no_nul(path, name, value.get<std::string>());
    arguments.push_back("--" + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return arguments;
}

}  // namespace remat::cli

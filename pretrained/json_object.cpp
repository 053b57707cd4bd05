#include "pretrained/json_object.h"

#include <set>
#include <vector>

namespace remat::pretrained {

std::string parse_object(const std::string& text, int most_depth, nlohmann::json& json) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  bool deep = false;
  std::string twice;
  // Looked at while parsing: printing or copying what is nested a million times would overflow the stack.
  const auto on_event = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    deep = deep || depth > most_depth;
    if (deep) return false;
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(value.get<std::string>()).second) twice = value.get<std::string>();
    return true;
  };
  json = nlohmann::json::parse(text, on_event, /*allow_exceptions=*/false);
  if (deep) return "is nested more than " + std::to_string(most_depth) + " deep";
  if (!json.is_object()) return "is no JSON object";
  if (!twice.empty()) return "has the name '" + twice + "' twice in one object";
  return "";
}

}  // namespace remat::pretrained

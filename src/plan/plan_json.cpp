#include <remat/plan.h>

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "plan/json.h"

namespace remat {
namespace {

using nlohmann::json;

constexpr const char* kDocument = "plan";
constexpr const char* kFormat = "remat-plan";

constexpr const char* kPlanFields[] = {
    "format", "version", "planner", "graph_fingerprint", "budget_bytes", "predicted_peak_bytes", "predicted_seconds",
    "actions"};
// By Action.
constexpr std::array kActionNames = {"keep", "drop", "drop_again", "pack"};

[[noreturn]] void refuse_to_write(const std::string& why) {
  throw Error("[plan] " + why + "; only a sound plan can be written");
}

uint64_t read_fingerprint(const JsonRecord& plan) {
  const std::string& text = plan.text("graph_fingerprint");
  const char* const end = text.data() + text.size();
  uint64_t number = 0;
  const auto [rest, failure] = std::from_chars(text.data(), end, number, 16);
  if (text.size() != 16 || failure != std::errc{} || rest != end)
    plan.refuse("graph_fingerprint", "is not 16 hexadecimal digits");
  return number;
}

/// Every value stands in exactly one list, so the lists' lengths say how many values there are. A number beside them
/// could claim any, and a short text would make us allocate for them.
std::vector<Action> read_actions(const JsonRecord& plan) {
  const JsonRecord record(plan["actions"], {kDocument, "actions"}, kActionNames);
  size_t count = 0;
  for (const char* name : kActionNames) count += record.list(name).size();
  std::vector<Action> actions(count);
  std::vector<bool> known(count, false);
  for (size_t action = 0; action < kActionNames.size(); ++action) {
    const char* const name = kActionNames[action];
    for (const int32_t value : record.indexes(name)) {
      const auto v = static_cast<size_t>(value);
      if (v >= count)
        record.refuse(name, "has value " + std::to_string(v) + ", but the lists together have " +
                                std::to_string(count) + " values, which are numbered from 0");
      if (known[v]) record.refuse(name, "has value " + std::to_string(v) + " a second time");
      known[v] = true;
      actions[v] = static_cast<Action>(action);
    }
  }
  return actions;
}

void write_action(std::string& out, const Plan& plan, Action action) {
  std::vector<int32_t> values;
  for (size_t v = 0; v < plan.actions.size(); ++v) {
    if (plan.actions[v] == action) values.push_back(static_cast<int32_t>(v));
  }
  out += std::string("  \"") + kActionNames[static_cast<size_t>(action)] + "\": ";
  append_json(out, values);
}

}  // namespace

std::string to_json(const Plan& plan) {
  if (plan.budget_bytes < 0) refuse_to_write("budget_bytes is " + std::to_string(plan.budget_bytes));
  if (plan.predicted_peak_bytes < 0)
    refuse_to_write("predicted_peak_bytes is " + std::to_string(plan.predicted_peak_bytes));
  if (!std::isfinite(plan.predicted_seconds) || plan.predicted_seconds < 0)
    refuse_to_write("predicted_seconds is " + std::to_string(plan.predicted_seconds));
  for (size_t v = 0; v < plan.actions.size(); ++v) {
    if (static_cast<size_t>(plan.actions[v]) >= kActionNames.size())
      refuse_to_write("value " + std::to_string(v) + " has the unknown action " +
                      std::to_string(static_cast<int>(plan.actions[v])));
  }

  std::string out = std::string("{\n \"format\": \"") + kFormat + "\",\n \"version\": ";
  append_json(out, int64_t{Plan::kVersion});
  out += ",\n \"planner\": ";
  append_json(out, plan.planner, {kDocument}, "planner");
  out += ",\n \"graph_fingerprint\": \"" + hexadecimal(plan.graph_fingerprint) + "\",\n \"budget_bytes\": ";
  append_json(out, plan.budget_bytes);
  out += ",\n \"predicted_peak_bytes\": ";
  append_json(out, plan.predicted_peak_bytes);
  out += ",\n \"predicted_seconds\": ";
  append_json(out, plan.predicted_seconds);
  out += ",\n \"actions\": {\n";
  // What is kept, mostly the longest list, comes last.
  for (const Action action : {Action::kDrop, Action::kDropAgain, Action::kPack}) {
    write_action(out, plan, action);
    out += ",\n";
  }
  write_action(out, plan, Action::kKeep);
  return out + "\n }\n}\n";
}

Plan plan_from_json(std::string_view text) {
  const json document = parse_document(text, kDocument, kFormat, Plan::kVersion);
  const JsonRecord record(document, {kDocument}, kPlanFields);
  return {.planner = record.text("planner"),
          .graph_fingerprint = read_fingerprint(record),
          .budget_bytes = record.bytes("budget_bytes"),
          .predicted_peak_bytes = record.bytes("predicted_peak_bytes"),
          .predicted_seconds = record.seconds("predicted_seconds"),
          .actions = read_actions(record)};
}

}  // namespace remat

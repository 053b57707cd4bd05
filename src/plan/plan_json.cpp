#include <remat/plan.h>

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "plan/form_costs.h"
#include "plan/json.h"

namespace remat {
namespace {

using nlohmann::json;

constexpr const char* kPlanDocument = "plan";
constexpr const char* kPlanFormat = "remat-plan";

// The last came with version 3.
constexpr const char* kPlanFields[] = {
    "format",  "version", "planner", "graph_fingerprint", "budget_bytes", "predicted_peak_bytes", "predicted_seconds",
    "actions", "forms"};
constexpr const char* kActionNames[] = {"recompute", "pack", "keep", "move"};
constexpr std::array<const char*, kForms> kFormNames = {"packed", "moved"};  ///< by Form
constexpr const char* kEachTime = "each_time";  ///< of Action::kNever, where others have the number

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

/// "1", "2", ... or "each_time".
Action read_recompute(const JsonRecord& actions, const std::string& name) {
  if (name == kEachTime) return Action::kRecomputeEachTime;
  int64_t time = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, failure] = std::from_chars(name.data(), end, time);
  const bool plain = failure == std::errc{} && rest == end && name.front() != '0';
  if (!plain || time < 1 || time >= Action::kNever)
    actions.refuse("recompute", "has the list \"" + name + "\"; lists there are named 1 to " +
                                    std::to_string(Action::kNever - 1) + ", or " + kEachTime);
  return Action::recompute(time);
}

std::map<Form, FormCosts> read_forms(const JsonRecord& plan) {
  if (!plan.has("forms")) return {{Form::kPacked, kPackingCosts}};
  const json& forms = plan["forms"];
  std::vector<const char*> names;
  for (const char* name : kFormNames) {
    if (forms.is_object() && forms.contains(name)) names.push_back(name);
  }
  const JsonRecord record(forms, {kPlanDocument, "forms"}, names);
  std::map<Form, FormCosts> costs;
  for (size_t form = 0; form < kForms; ++form) {
    if (record.has(kFormNames[form])) costs[static_cast<Form>(form)] = record.form_costs(kFormNames[form]);
  }
  return costs;
}

/// Every value stands in exactly one list, so the lists' lengths say how many values there are. A number beside them
/// could claim any, and a short text would make us allocate for them.
std::vector<Action> read_actions(const JsonRecord& plan) {
  JsonRecord::Fields lists_there_are(kActionNames);
  const bool moves = plan.has("forms");
  if (!moves) lists_there_are = lists_there_are.first(lists_there_are.size() - 1);
  const JsonRecord record(plan["actions"], {kPlanDocument, "actions"}, lists_there_are);
  const json& recompute = record["recompute"];
  if (!recompute.is_object()) record.refuse("recompute", "is not an object of lists");
  std::vector<std::string> names;
  for (const auto& [name, list] : recompute.items()) names.push_back(name);
  std::vector<const char*> fields;
  fields.reserve(names.size());
  for (const std::string& name : names) fields.push_back(name.c_str());
  const JsonRecord times(recompute, {kPlanDocument, "actions.recompute"}, fields);

  struct List {
    Action action;
    const JsonRecord* record;
    const char* name;
  };
  std::vector<List> lists = {{Action::kPack, &record, "pack"}, {Action::kKeep, &record, "keep"}};
  if (moves) lists.push_back({Action::kMove, &record, "move"});
  for (const std::string& name : names) lists.push_back({read_recompute(record, name), &times, name.c_str()});
  size_t count = 0;
  for (const List& list : lists) count += list.record->list(list.name).size();
  std::vector<Action> actions(count);
  std::vector<bool> known(count, false);
  for (const List& list : lists) {
    for (const int32_t value : list.record->indexes(list.name)) {
      const auto v = static_cast<size_t>(value);
      if (v >= count)
        list.record->refuse(list.name, "has value " + std::to_string(v) + ", but the lists together have " +
                                           std::to_string(count) + " values, which are numbered from 0");
      if (known[v]) list.record->refuse(list.name, "has value " + std::to_string(v) + " a second time");
      known[v] = true;
      actions[v] = list.action;
    }
  }
  return actions;
}

void write_list(std::string& out, const char* indent, const std::string& name, const std::vector<int32_t>& values) {
  out += indent + ("\"" + name + "\": ");
  append_json(out, values);
}

void write_actions(std::string& out, const std::vector<Action>& actions) {
  std::map<uint16_t, std::vector<int32_t>> recompute;  // by the time from which on they are held
  std::vector<int32_t> pack, move, keep;
  for (size_t v = 0; v < actions.size(); ++v) {
    const auto value = static_cast<int32_t>(v);
    if (actions[v].kind == Action::Kind::kRecompute) {
      recompute[actions[v].held_from].push_back(value);
    } else {
      (actions[v] == Action::kPack ? pack : actions[v] == Action::kMove ? move : keep).push_back(value);
    }
  }
  out += "{\n  \"recompute\": {";
  const char* separator = "\n";
  for (const auto& [time, values] : recompute) {
    out += std::exchange(separator, ",\n");
    write_list(out, "   ", time == Action::kNever ? kEachTime : std::to_string(time), values);
  }
  out += recompute.empty() ? "},\n" : "\n  },\n";
  write_list(out, "  ", "pack", pack);
  out += ",\n";
  write_list(out, "  ", "move", move);
  out += ",\n";
  write_list(out, "  ", "keep", keep);  // mostly the longest, so the last
  out += "\n }";
}

}  // namespace

std::string to_json(const Plan& plan) {
  if (plan.budget_bytes < 0) refuse_to_write("budget_bytes is " + std::to_string(plan.budget_bytes));
  if (plan.predicted_peak_bytes < 0)
    refuse_to_write("predicted_peak_bytes is " + std::to_string(plan.predicted_peak_bytes));
  if (!std::isfinite(plan.predicted_seconds) || plan.predicted_seconds < 0)
    refuse_to_write("predicted_seconds is " + support::short_text(plan.predicted_seconds));
  for (size_t v = 0; v < plan.actions.size(); ++v) {
    const auto [kind, held_from, form] = plan.actions[v];
    if (kind > Action::Kind::kRecompute || (kind == Action::Kind::kRecompute) != (held_from > 0) || form > Form::kMoved)
      refuse_to_write("value " + std::to_string(v) + " has the unknown action " +
                      std::to_string(static_cast<int>(kind)) + ", held from " + std::to_string(held_from) +
                      " on, form " + std::to_string(static_cast<int>(form)));
  }
  for (const auto& [form, costs] : plan.forms) {
    for (const double each : {costs.out.compute, costs.out.copy, costs.in.compute, costs.in.copy}) {
      if (!std::isfinite(each) || each < 0) refuse_to_write("a form costs " + support::short_text(each));
    }
  }

  std::string out = std::string("{\n \"format\": \"") + kPlanFormat + "\",\n \"version\": ";
  append_json(out, int64_t{Plan::kVersion});
  out += ",\n \"planner\": ";
  append_json(out, plan.planner, {kPlanDocument}, "planner");
  out += ",\n \"graph_fingerprint\": \"" + hexadecimal(plan.graph_fingerprint) + "\",\n \"budget_bytes\": ";
  append_json(out, plan.budget_bytes);
  append_json(out, ",\n \"predicted_peak_bytes\": ", plan.predicted_peak_bytes);
  append_json(out, ",\n \"predicted_seconds\": ", plan.predicted_seconds);
  out += ",\n \"forms\": {";
  const char* separator = "\n  \"";
  for (const auto& [form, costs] : plan.forms) {
    out += std::exchange(separator, ",\n  \"") + std::string(kFormNames[static_cast<size_t>(form)]) + "\": ";
    append_json(out, costs);
  }
  out += plan.forms.empty() ? "}" : "\n }";
  out += ",\n \"actions\": ";
  write_actions(out, plan.actions);
  return out + "\n}\n";
}

Plan plan_from_json(std::string_view text) {
  const json document = parse_document(text, kPlanDocument, kPlanFormat, {Plan::kOldestVersion, Plan::kVersion});
  JsonRecord::Fields fields(kPlanFields);
  if (document["version"] == Plan::kOldestVersion) fields = fields.first(fields.size() - 1);
  const JsonRecord record(document, {kPlanDocument}, fields);
  return {.planner = record.text("planner"),
          .graph_fingerprint = read_fingerprint(record),
          .budget_bytes = record.bytes("budget_bytes"),
          .predicted_peak_bytes = record.bytes("predicted_peak_bytes"),
          .predicted_seconds = record.seconds("predicted_seconds"),
          .forms = read_forms(record),
          .actions = read_actions(record)};
}

}  // namespace remat

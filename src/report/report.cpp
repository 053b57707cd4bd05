#include <remat/report.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <remat/budget.h>
#include <remat/error.h>

#include <remat/support/number_text.h>

namespace remat {
namespace {

constexpr size_t kNameColumns = 22;
constexpr double kLongWait = 0.01;  ///< for a plan, as a share of the step: shorter ones are not told

std::string seconds_text(double seconds) { return support::fixed_text(seconds, 3) + " s"; }

std::string percent_text(double percent) {
  const double size = std::abs(percent);
  return support::fixed_text(size < 0.05 ? 0 : percent, size >= 0.05 && size < 9.95 ? 1 : 0) + " %";
}

/// Generators' states and copies that replays begin with are there in a step that drops nothing, too.
std::string against_plain(const StepReport& r) {
  const double saved = r.saved_percent();
  const std::string memory = saved > -0.05
                                 ? "saved " + percent_text(saved) + " of the activation peak"
                                 : "activation peak " + percent_text(-saved) + " higher, by what replays need";
  return memory + ", costs " + percent_text(r.cost_percent()) + " of the time";
}

std::string decision_text(const StepReport& r) {
  return r.decided_by + (r.decision_reason.empty() ? "" : ": " + r.decision_reason);
}

/// Calls `visit(name, field)` for every field that is one number, flag or text: the names of the JSON.
template <class Report, class Visit>
void visit_fields(Report& r, Visit&& visit) {
  visit("step", r.step);
  visit("completed", r.completed);
  visit("decided_by", r.decided_by);
  visit("decision_reason", r.decision_reason);
  visit("budget_bytes", r.budget_bytes);
  visit("baseline_bytes", r.baseline_bytes);
  visit("peak_bytes", r.peak_bytes);
  visit("planned_peak_bytes", r.planned_peak_bytes);
  visit("plain_peak_bytes", r.plain_peak_bytes);
  visit("end_bytes", r.end_bytes);
  visit("record_bytes", r.record_bytes);
  visit("held_replaced_bytes", r.held_replaced_bytes);
  visit("reserved_peak_bytes", r.reserved_peak_bytes);
  visit("resident_peak_bytes", r.resident_peak_bytes);
  visit("operators_recorded", r.operators_recorded);
  visit("values_saved", r.values_saved);
  visit("values_dropped", r.values_dropped);
  visit("dropped_bytes", r.dropped_bytes);
  visit("values_packed", r.values_packed);
  visit("packed_bytes", r.packed_bytes);
  visit("operators_replayed", r.operators_replayed);
  visit("forward_seconds", r.forward_seconds);
  visit("recompute_seconds", r.recompute_seconds);
  visit("planning_seconds", r.planning_seconds);
  visit("step_seconds", r.step_seconds);
}

/// The same for those that reports of earlier versions have not.
template <class Report, class Visit>
void visit_newer_fields(Report& r, Visit&& visit) {
  visit("values_moved", r.values_moved);
  visit("moved_bytes", r.moved_bytes);
  visit("move_wait_seconds", r.move_wait_seconds);
  visit("budget_reason", r.budget_reason);
  visit("available_bytes", r.available_bytes);
  visit("stalled_percent", r.stalled_percent);
  visit("granted_bytes", r.granted_bytes);
  visit("waited_seconds", r.waited_seconds);
}

template <class Replayed, class Visit>
void visit_replayed(Replayed& r, Visit&& visit) {
  visit("name", r.name);
  visit("count", r.count);
  visit("seconds", r.seconds);
  visit("bytes", r.bytes);
}

/// JSON strings in reports are operator names and reasons; escape what they could contain at worst.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result.push_back('\\');
    if (static_cast<unsigned char>(c) >= 0x20) result.push_back(c);
  }
  return result + "\"";
}

class ObjectWriter {
 public:
  explicit ObjectWriter(std::string& out) : out_(out) {}

  template <class Value>
  void operator()(const char* name, const Value& value) {
    out_.append(separator_).append("\"").append(name).append("\": ");
    if constexpr (std::is_same_v<Value, bool>) {
      out_ += value ? "true" : "false";
    } else if constexpr (std::is_same_v<Value, std::string>) {
      out_ += quoted(value);
    } else if constexpr (std::is_floating_point_v<Value>) {
      out_ += support::short_text(value, 9);
    } else {
      out_ += std::to_string(value);
    }
    separator_ = ", ";
  }

 private:
  std::string& out_;
  const char* separator_ = "";
};

}  // namespace

double StepReport::saved_percent() const {
  const auto plain = static_cast<double>(plain_activation_peak_bytes());
  return plain > 0 ? 100 * (1 - static_cast<double>(activation_peak_bytes()) / plain) : 0;
}

double StepReport::cost_percent() const {
  const double extra = recompute_seconds + move_wait_seconds;
  const double rest = step_seconds - planning_seconds - extra;
  return rest > 0 ? 100 * extra / rest : 0;
}

std::string to_text(const StepReport& r) {
  std::string out;
  const auto row = [&](std::string name, const std::string& value) {
    name.resize(std::max(kNameColumns, name.size()), ' ');
    out += name + ' ' + value + '\n';
  };
  row("step", std::to_string(r.step) + (r.completed ? "" : " (did not complete)"));
  row("budget", format_bytes(r.budget_bytes) + (r.budget_reason.empty() ? "" : ", " + r.budget_reason));
  if (r.granted_bytes > 0)
    row("granted", format_bytes(r.granted_bytes) + " of it, beyond what was alive, after waiting " +
                       seconds_text(r.waited_seconds));
  row("measured peak", format_bytes(r.peak_bytes));
  if (r.planned_peak_bytes > 0) row("planned peak", format_bytes(r.planned_peak_bytes));
  row("plain would peak at", format_bytes(r.plain_peak_bytes));
  row("against plain", against_plain(r));
  row("decided by", decision_text(r));
  row("alive before / after", format_bytes(r.baseline_bytes) + " / " + format_bytes(r.end_bytes));
  if (r.reserved_peak_bytes > 0) row("reserved of the device", format_bytes(r.reserved_peak_bytes));
  row("process resident peak", format_bytes(r.resident_peak_bytes) +
                                   "  (with code, stacks, libraries' scratch space and memory kept for reuse)");
  row("saved values", std::to_string(r.values_saved) + ", " + format_bytes(r.held_replaced_bytes));
  row("dropped", std::to_string(r.values_dropped) + " times, " + format_bytes(r.dropped_bytes));
  if (r.values_packed > 0)
    row("packed", std::to_string(r.values_packed) + " times, freed " + format_bytes(r.packed_bytes));
  if (r.values_moved > 0)
    row("moved to disk", std::to_string(r.values_moved) + " times, " + format_bytes(r.moved_bytes) + ", waited " +
                             seconds_text(r.move_wait_seconds) + " for it");
  row("operators",
      std::to_string(r.operators_recorded) + " recorded, " + std::to_string(r.operators_replayed) + " replayed");
  row("records", format_bytes(r.record_bytes));
  row("time",
      seconds_text(r.step_seconds) + ", of it recomputing " + seconds_text(r.recompute_seconds) +
          (r.planning_seconds > kLongWait * r.step_seconds ? ", waiting for a plan " + seconds_text(r.planning_seconds)
                                                           : ""));
  for (const auto& op : r.replayed) {
    row("  " + op.name, std::to_string(op.count) + " x, " + seconds_text(op.seconds) + ", " + format_bytes(op.bytes));
  }
  return out;
}

std::string to_json(const StepReport& r) {
  std::string out = "{";
  ObjectWriter fields(out);
  visit_fields(r, fields);
  visit_newer_fields(r, fields);
  out += ", \"replayed\": [";
  const char* separator = "";
  for (const auto& op : r.replayed) {
    out.append(separator).append("{");
    visit_replayed(op, ObjectWriter(out));
    out += "}";
    separator = ", ";
  }
  return out + "]}";
}

StepReport report_from_json(std::string_view text) {
  StepReport report;
  try {
    const auto json = nlohmann::json::parse(text);
    visit_fields(report, [&](const char* name, auto& field) { json.at(name).get_to(field); });
    visit_newer_fields(report, [&](const char* name, auto& field) {
      if (json.contains(name)) json.at(name).get_to(field);
    });
    for (const auto& element : json.at("replayed")) {
      visit_replayed(report.replayed.emplace_back(),
                     [&](const char* name, auto& field) { element.at(name).get_to(field); });
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error("[report] this is no report in JSON (" + std::string(error.what()) + "); give what to_json() wrote");
  }
  return report;
}

}  // namespace remat

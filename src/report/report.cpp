#include <remat/report.h>

#include <remat/budget.h>

#include <cstdio>
#include <sstream>

namespace remat {
namespace {

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", seconds);
  return text;
}

/// JSON strings in reports are operator names; escape what they could contain at worst.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result.push_back('\\');
    if (static_cast<unsigned char>(c) >= 0x20) result.push_back(c);
  }
  return result + "\"";
}

}  // namespace

std::string to_text(const StepReport& r) {
  std::ostringstream out;
  const auto row = [&](const char* name, const std::string& value) {
    char line[160];
    std::snprintf(line, sizeof line, "%-22s %s\n", name, value.c_str());
    out << line;
  };
  row("step", std::to_string(r.step) + (r.completed ? "" : " (did not complete)"));
  row("budget", format_bytes(r.budget_bytes));
  row("measured peak", format_bytes(r.peak_bytes));
  if (r.planned_peak_bytes > 0) row("planned peak", format_bytes(r.planned_peak_bytes));
  row("plain would peak at", format_bytes(r.plain_peak_bytes));
  row("alive before / after", format_bytes(r.baseline_bytes) + " / " + format_bytes(r.end_bytes));
  row("process resident peak", format_bytes(r.resident_peak_bytes) +
                                   "  (with code, stacks, libraries' scratch space and memory kept for reuse)");
  row("saved values", std::to_string(r.values_saved) + ", " + format_bytes(r.held_replaced_bytes));
  row("dropped", std::to_string(r.values_dropped) + " times, " + format_bytes(r.dropped_bytes));
  if (r.values_packed > 0)
    row("packed", std::to_string(r.values_packed) + " times, freed " + format_bytes(r.packed_bytes));
  row("operators",
      std::to_string(r.operators_recorded) + " recorded, " + std::to_string(r.operators_replayed) + " replayed");
  row("records", format_bytes(r.record_bytes));
  row("time", seconds_text(r.step_seconds) + ", of it recomputing " + seconds_text(r.recompute_seconds));
  for (const auto& op : r.replayed) {
    row(("  " + op.name).c_str(),
        std::to_string(op.count) + " x, " + seconds_text(op.seconds) + ", " + format_bytes(op.bytes));
  }
  return out.str();
}

std::string to_json(const StepReport& r) {
  std::ostringstream out;
  out.precision(9);
  out << "{\"step\": " << r.step << ", \"completed\": " << (r.completed ? "true" : "false")
      << ", \"budget_bytes\": " << r.budget_bytes << ", \"baseline_bytes\": " << r.baseline_bytes
      << ", \"peak_bytes\": " << r.peak_bytes << ", \"planned_peak_bytes\": " << r.planned_peak_bytes
      << ", \"plain_peak_bytes\": " << r.plain_peak_bytes << ", \"end_bytes\": " << r.end_bytes
      << ", \"record_bytes\": " << r.record_bytes << ", \"held_replaced_bytes\": " << r.held_replaced_bytes
      << ", \"resident_peak_bytes\": " << r.resident_peak_bytes << ", \"operators_recorded\": " << r.operators_recorded
      << ", \"values_saved\": " << r.values_saved << ", \"values_dropped\": " << r.values_dropped
      << ", \"dropped_bytes\": " << r.dropped_bytes << ", \"values_packed\": " << r.values_packed
      << ", \"packed_bytes\": " << r.packed_bytes << ", \"operators_replayed\": " << r.operators_replayed
      << ", \"forward_seconds\": " << r.forward_seconds << ", \"recompute_seconds\": " << r.recompute_seconds
      << ", \"planning_seconds\": " << r.planning_seconds << ", \"step_seconds\": " << r.step_seconds
      << ", \"replayed\": [";
  const char* separator = "";
  for (const auto& op : r.replayed) {
    out << separator << "{\"name\": " << quoted(op.name) << ", \"count\": " << op.count
        << ", \"seconds\": " << op.seconds << ", \"bytes\": " << op.bytes << "}";
    separator = ", ";
  }
  out << "]}";
  return out.str();
}

}  // namespace remat

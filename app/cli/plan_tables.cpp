// What `remat plan` prints.
#include <cmath>

#include "cli/plan.h"
#include "cli/printable.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

std::string percent(std::optional<double> value) { return value ? format_number(*value, 1) + "%" : "-"; }

std::string budget_text(int64_t budget_bytes, const PlainStep& plain) {
  return format_bytes(budget_bytes) + ", " + percent(plain.activation_percent(budget_bytes)) +
         " of plain's activation peak";
}

}  // namespace

std::string plan_table(const Graph& graph, const PlainStep& plain, const Attempt& attempt) {
  const Plan& plan = *attempt.plan;
  const auto counts = count_actions(graph, plan);
  const auto above = [&](int64_t bytes) { return format_bytes(bytes - plain.baseline_bytes); };
  Table table;
  table.add({"", plan.planner, "of plain"});
  table.add({"budget", format_bytes(plan.budget_bytes)});
  table.add({"  above the baseline", above(plan.budget_bytes), percent(plain.activation_percent(plan.budget_bytes))});
  table.add({"predicted peak", format_bytes(plan.predicted_peak_bytes)});
  table.add({"  activation peak", above(plan.predicted_peak_bytes),
             percent(plain.activation_percent(plan.predicted_peak_bytes))});
  table.add(
      {"extra time", format_seconds(plan.predicted_seconds), percent(plain.extra_percent(plan.predicted_seconds))});
  table.add({"values kept", format_count(counts.kept)});
  table.add({"values recomputed", format_count(counts.recomputed)});
  table.add({"values held later", format_count(counts.held_later)});
  table.add({"values packed", format_count(counts.packed)});
  if (graph.tier) table.add({"values moved", format_count(counts.moved)});
  table.add({"planning time", format_seconds(attempt.planning_seconds)});
  return table.to_string();
}

std::string planners_table(const Graph& graph, const PlainStep& plain, int64_t budget_bytes, double least_seconds,
                           const std::vector<Attempt>& attempts) {
  Table table;
  std::string explained;
  table.add({"planner", "predicted peak", "activation peak", "extra time", "of the step", "above the least", "kept",
             "recomputed", "held later", "packed", "planning time"});
  for (const Attempt& attempt : attempts) {
    const auto planning = format_seconds(attempt.planning_seconds);
    if (attempt.plan) {
      const auto counts = count_actions(graph, *attempt.plan);
      const auto peak = attempt.plan->predicted_peak_bytes;
      const auto seconds = attempt.plan->predicted_seconds;
      table.add({attempt.planner, format_bytes(peak), percent(plain.activation_percent(peak)), format_seconds(seconds),
                 percent(plain.extra_percent(seconds)), percent(plain.extra_percent(seconds - least_seconds)),
                 format_count(counts.kept), format_count(counts.recomputed), format_count(counts.held_later),
                 format_count(counts.packed), planning});
    } else if (attempt.smallest_peak_bytes) {
      const auto peak = *attempt.smallest_peak_bytes;
      table.add({attempt.planner, "needs " + format_bytes(peak), percent(plain.activation_percent(peak)), "-", "-", "-",
                 "-", "-", "-", "-", planning});
    } else {
      table.add({attempt.planner, "no plan", "-", "-", "-", "-", "-", "-", "-", "-", planning});
      explained += attempt.planner + ": " + printable(attempt.message) + "\n";
    }
  }
  const std::string least = std::isfinite(least_seconds)
                                ? "no plan takes less than " + format_seconds(least_seconds) + " there, " +
                                      percent(plain.extra_percent(least_seconds)) + " of the step"
                                : "no plan fits it";
  return "budget: " + budget_text(budget_bytes, plain) + "; " + least + "\n" + table.to_string() + explained;
}

std::string curve_table(const Curve& curve, const PlainStep& plain) {
  Table table;
  table.add({"budget", "bytes", "predicted peak", "activation peak", "extra time", "of the step", "planning time"});
  for (const CurvePoint& point : curve.points) {
    table.add({format_number(point.percent, 0) + "%", format_bytes(point.budget_bytes),
               format_bytes(point.predicted_peak_bytes), percent(plain.activation_percent(point.predicted_peak_bytes)),
               format_seconds(point.predicted_seconds), percent(plain.extra_percent(point.predicted_seconds)),
               format_seconds(point.planning_seconds)});
  }
  auto text = table.to_string();
  if (curve.smallest_peak_bytes) {
    text += "below: no plan of " + curve.planner + "; its smallest needs " +
            budget_text(*curve.smallest_peak_bytes, plain) + "\n";
  }
  return text;
}

}  // namespace remat::cli

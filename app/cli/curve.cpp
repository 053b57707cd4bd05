#include "cli/curve.h"

#include <algorithm>

#include <remat/error.h>

#include "cli/chart.h"
#include "cli/table.h"

namespace remat::cli {

constexpr int kStepPercent = 5;

std::vector<int64_t> curve_budgets(const PlainStep& plain) {
  std::vector<int64_t> budgets;
  for (int percent = 100; percent > 0; percent -= kStepPercent) {
    budgets.push_back(plain.bytes_of(Budget::percent(percent)));
  }
  return budgets;
}

Curve make_curve(const PlainStep& plain, const std::string& planner, const PlanFor& plan_for) {
  if (plain.activation_bytes() <= 0 || plain.seconds <= 0) {
    throw Error("[curve] the graph has an activation peak of " + std::to_string(plain.activation_bytes()) +
                " bytes and a step of " + format_seconds(plain.seconds) +
                ", which leaves no percentages; record a whole training step");
  }
  Curve curve{planner, {}, {}};
  for (const int64_t budget : curve_budgets(plain)) {
    const auto percent = 100 - kStepPercent * static_cast<int>(curve.points.size());
    const Attempt attempt = plan_for(budget);
    if (!attempt.plan) {
      if (!attempt.smallest_peak_bytes || curve.points.empty()) std::rethrow_exception(attempt.error);
      curve.smallest_peak_bytes = attempt.smallest_peak_bytes;
      break;
    }
    curve.points.push_back({static_cast<double>(percent), budget, attempt.plan->predicted_peak_bytes,
                            attempt.plan->predicted_seconds, attempt.planning_seconds});
  }
  carry_forward(curve.points);
  return curve;
}

void carry_forward(std::vector<CurvePoint>& points) {
  for (size_t i = points.size(); i-- > 1;) {
    const CurvePoint& smaller = points[i];
    CurvePoint& larger = points[i - 1];
    if (smaller.predicted_seconds >= larger.predicted_seconds) continue;
    larger.predicted_seconds = smaller.predicted_seconds;
    larger.predicted_peak_bytes = smaller.predicted_peak_bytes;
  }
}

nlohmann::json to_json(const std::vector<CurvePoint>& points, const PlainStep& plain) {
  auto list = nlohmann::json::array();
  for (const CurvePoint& point : points) {
    list.push_back({{"percent", point.percent},
                    {"budget_bytes", point.budget_bytes},
                    {"predicted_peak_bytes", point.predicted_peak_bytes},
                    {"predicted_seconds", point.predicted_seconds},
                    {"extra_percent", plain.extra_percent(point.predicted_seconds).value_or(0)},
                    {"planning_seconds", point.planning_seconds}});
  }
  return list;
}

std::string to_svg(const Curve& curve, const PlainStep& plain, const std::string& graph_name) {
  Chart chart{.title = graph_name + ", planner " + curve.planner,
              .x_label = "activation peak, % of plain",
              .y_label = "extra time, % of the step",
              .lines = {{}}};
  for (const CurvePoint& point : curve.points) {
    const double x = plain.activation_percent(point.predicted_peak_bytes).value_or(0);
    const double y = plain.extra_percent(point.predicted_seconds).value_or(0);
    chart.lines.front().points.push_back(
        {x, y,
         "budget " + format_number(point.percent, 0) + "%: activation peak " + format_number(x, 1) + "% (" +
             format_bytes(point.predicted_peak_bytes - plain.baseline_bytes) + "), extra time " + format_number(y, 1) +
             "% (" + format_seconds(point.predicted_seconds) + ")"});
  }
  return to_svg(chart);
}

}  // namespace remat::cli

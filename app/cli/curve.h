// cli/curve.h -- what a step costs, budget by budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/planning.h"

namespace remat::cli {

struct CurvePoint {
  double percent = 0;  ///< the budget's share of plain's activation peak
  int64_t budget_bytes = 0;
  int64_t predicted_peak_bytes = 0;
  double predicted_seconds = 0;
  double planning_seconds = 0;
};

struct Curve {
  std::string planner;
  std::vector<CurvePoint> points;              ///< from 100 % down by 5 %, to the last that there is a plan for
  std::optional<int64_t> smallest_peak_bytes;  ///< what the first budget without a plan would have to be
};

/// The budgets of a curve, in bytes: from 100 % of plain's activation peak down by 5 %.
std::vector<int64_t> curve_budgets(const PlainStep& plain);

/// Plans for a budget in bytes: try_plan() with the rest given.
using PlanFor = std::function<Attempt(int64_t budget_bytes)>;

/// Plans for one budget after the other, until one has no plan; then carries forward. Throws Error where the graph
/// gives no percentages or the planner cannot plan it at all, BudgetError where it has no plan for any budget.
Curve make_curve(const PlainStep& plain, const std::string& planner, const PlanFor& plan_for);

/// A plan for a smaller budget holds in a larger one too: where it takes less time than the plan made there, it takes
/// that one's place. So less memory never looks faster. `points`: budgets fall.
void carry_forward(std::vector<CurvePoint>& points);

/// A list of objects with the names above, and the extra time in percent of the step.
nlohmann::json to_json(const std::vector<CurvePoint>& points, const PlainStep& plain);

/// A line chart: activation peak in percent of plain's, extra time in percent of the step.
std::string to_svg(const Curve& curve, const PlainStep& plain, const std::string& graph_name);

}  // namespace remat::cli

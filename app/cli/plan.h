// cli/plan.h -- `remat plan`. Needs no torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/curve.h"
#include "cli/planning.h"
#include "cli/settings.h"

namespace remat::cli {

/// Plans a recorded step, prints what that gives and writes the files asked for. Throws BudgetError where
/// settings.planner finds no plan.
void run_plan(const PlanSettings& settings);

// What it prints.

/// One plan: figure by figure.
std::string plan_table(const Graph& graph, const PlainStep& plain, const Attempt& attempt);
/// Several planners: a row each. Those that cannot plan the graph at all are explained below the table.
/// `least_seconds`: what no plan goes below (seconds_bound()).
std::string planners_table(const Graph& graph, const PlainStep& plain, int64_t budget_bytes, double least_seconds,
                           const std::vector<Attempt>& attempts);
/// A row for each budget.
std::string curve_table(const Curve& curve, const PlainStep& plain);

}  // namespace remat::cli

// src/plan/planners.h -- every planner, one function each. docs/algorithms.md has their papers and equations.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/planner.h>

namespace remat::planners {

/// Each returns the actions of a plan that the simulator puts within the budget, or the one with the lowest peak that
/// it found.
using Actions = std::vector<Action>;

Actions keep_all(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions drop_all(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions automatic(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions segments(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions articulation_memory(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions articulation_speed(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions selective(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions rotor(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions revolve(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Actions online(const Graph& graph, int64_t budget_bytes, PlannerOptions options);

}  // namespace remat::planners

namespace remat {

/// A plan of these actions, judged by the simulator. Throws BudgetError where it does not fit.
Plan finished_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner, planners::Actions actions);

}  // namespace remat

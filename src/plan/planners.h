// src/plan/planners.h -- every planner, one function each. docs/algorithms.md has their papers and equations.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/planner.h>

namespace remat::planners {

/// The actions of a plan, by value. Each planner returns those of a plan that fits the budget by the simulator, or,
/// where it finds none, of the plan with the lowest peak.
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

/// The plan with these actions and the simulator's prediction. Throws BudgetError where it does not fit the budget.
Plan finished_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner, planners::Actions actions);

}  // namespace remat

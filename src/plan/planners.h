// src/plan/planners.h -- every planner, one function each. docs/algorithms.md has their papers and equations.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/planner.h>

namespace remat::planners {

/// Each returns the fates of a plan that the simulator puts within the budget, or the one with the lowest peak that it
/// found.
using Fates = std::vector<Fate>;

Fates keep_all(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates drop_all(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates automatic(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates segments(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates articulation_memory(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates articulation_speed(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates selective(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates rotor(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates revolve(const Graph& graph, int64_t budget_bytes, PlannerOptions options);
Fates online(const Graph& graph, int64_t budget_bytes, PlannerOptions options);

}  // namespace remat::planners

namespace remat {

/// A plan of these fates, judged by the simulator. Throws BudgetError where it does not fit.
Plan finished_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner, planners::Fates fates);

}  // namespace remat

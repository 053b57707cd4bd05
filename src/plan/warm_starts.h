// src/plan/warm_starts.h -- the plans of the other planners, from which the search of `auto` starts.
#pragma once

#include <cstdint>

#include "plan/pareto_front.h"
#include "plan/planners.h"

namespace remat::planners {

/// Offers to `front` the plan of every planner but `auto` for this budget.
void offer_warm_starts(ParetoFront& front, const Graph& graph, int64_t budget_bytes, PlannerOptions options);

}  // namespace remat::planners

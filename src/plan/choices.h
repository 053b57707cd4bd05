// src/plan/choices.h -- what the other planners choose, for `auto` to start from.
#pragma once

#include <cstdint>

#include "plan/pareto_front.h"
#include "plan/planners.h"

namespace remat::planners {

/// What all planners but `auto` choose for this very budget.
void offer_choices(ParetoFront& front, const Graph& graph, int64_t budget_bytes, PlannerOptions options);

}  // namespace remat::planners

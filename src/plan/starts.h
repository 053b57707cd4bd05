// src/plan/starts.h -- what the planners of the literature come up with, and families, for `auto` to begin from.
#pragma once

#include <cstdint>

#include "plan/candidates.h"
#include "plan/planners.h"

namespace remat::planners {

/// How many plans a planner makes: kSome takes some hundredths of a second where kAll takes some tenths.
enum class Tries : uint8_t { kAll, kSome };

void offer_segments(Candidates& candidates, const Graph& graph, Tries tries);
void offer_revolve(Candidates& candidates, const Graph& graph);
void offer_rotor(Candidates& candidates, const Graph& graph, PlannerOptions options, Tries tries);

/// Plans of the policy for one budget. Of kSome: until it replays without end.
void offer_online(Candidates& candidates, const Graph& graph, int64_t budget_bytes, PlannerOptions options,
                  Tries tries);

/// Plans with one rule for all that like operators made. Some tenths of a second where there are thousands of
/// operators.
void offer_families(Frontier& frontier, const Graph& graph, PlannerOptions options);
/// Looks for what fits `limit` alone.
void offer_families(Frontier& frontier, const Graph& graph, PlannerOptions options, int64_t limit);

/// Some of each of these. They do not depend on a budget.
void offer_starts(Frontier& frontier, const Graph& graph, PlannerOptions options);
/// What the other planners choose for this very budget: `auto` is no worse than any of them.
void offer_choices(Frontier& frontier, const Graph& graph, int64_t budget_bytes, PlannerOptions options);

}  // namespace remat::planners

// remat/planner.h -- from a graph and a budget to a plan.
//
// Pure functions: no torch, no clock, no files. The same graph and budget give the same plan, byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

struct PlannerOptions {
  bool pack = true;  ///< plans may hold values packed
};

/// Plans a step of `graph` within `budget_bytes`, baseline included. Throws BudgetError with the smallest budget that
/// the planner found a plan for, Error if the graph is not sound or there is no such planner.
Plan make_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner = "auto",
               PlannerOptions options = {});

/// What a step of `graph` would take under `fates`, one for each value: the prediction in every plan. Throws Error if
/// the graph is not sound, or the fates are not what Plan::problem() asks of them.
struct Prediction {
  int64_t peak_bytes = 0;  ///< baseline included
  double seconds = 0;      ///< of replays, packing and unpacking
};
Prediction predict(const Graph& graph, const std::vector<Fate>& fates);

/// A planner by name, and what it does in a line.
struct PlannerInfo {
  std::string_view name;
  std::string_view description;
};
const std::vector<PlannerInfo>& list_planners();

}  // namespace remat

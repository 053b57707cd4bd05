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

/// What a planner may do.
struct PlannerOptions {
  bool pack = true;  ///< plans may hold values packed
  bool move = true;  ///< plans of "auto" may move values, where the graph has a tier
  /// "auto" alone: five more searches around this budget, each three times as long, and all plans are tried for fifteen
  /// times as long: about 2 s for 500 operators.
  bool refine = false;
};

/// Plans a step of `graph` within `budget_bytes`, baseline included. Throws BudgetError with the smallest budget that
/// the planner found a plan for and floor_of() as the lower bound, Error if the graph is not sound or there is no such
/// planner.
Plan make_plan(const Graph& graph, int64_t budget_bytes, std::string_view planner = "auto",
               PlannerOptions options = {});

/// Plans by "auto" for several budgets: for each of `budgets` that a plan fits, in their order, and at the end the plan
/// with the lowest peak, for a budget of just that. A larger budget's plan is never slower. For each budget it searches
/// a quarter as long as make_plan(), which may give a faster one. `options.refine` has no effect. Throws Error if the
/// graph is not sound.
std::vector<Plan> plan_curve(const Graph& graph, const std::vector<int64_t>& budgets, PlannerOptions options = {});

/// What predict() says of a step.
struct Prediction {
  int64_t peak_bytes = 0;  ///< baseline included
  double seconds = 0;      ///< of replays, packing, unpacking and waiting for copies
};
/// What a step of `graph` would take under `actions`, one for each value: the prediction in every plan. Above
/// `budget_bytes`, baseline included, values that are moved make room: 0 stands for no budget.
/// Throws Error if the graph is not sound, or the actions are not what Plan::problem() asks of them.
Prediction predict(const Graph& graph, const std::vector<Action>& actions, int64_t budget_bytes = 0);

/// The lowest peak that a plan could have, and what it is made of. No plan fits a budget below it; the smallest that
/// one fits may be larger, since replays take memory too. All in bytes.
struct Floor {
  int64_t peak_bytes = 0;       ///< baseline included
  int64_t parameter_bytes = 0;  ///< alive when the step began: parameters ...
  int64_t gradient_bytes = 0;   ///< ... their gradients ...
  int64_t baseline_bytes = 0;   ///< ... and all, optimizer state and inputs included
  std::string operator_name;    ///< that sets the peak; empty where that is the step's beginning
  bool backward = false;        ///< in its backward pass

  /// Of the peak, what the step adds to its baseline.
  int64_t activation_bytes() const { return peak_bytes - baseline_bytes; }
};
/// Of a sound graph, in linear time.
Floor floor_of(const Graph& graph);
/// "98 MiB of parameters, 98 MiB of their gradients, 134 MiB while aten::_log_softmax runs backward".
std::string to_text(const Floor& floor);
/// What would help where `budget_bytes` are too few.
std::string advice(const Floor& floor, int64_t budget_bytes);

/// Seconds of replays and packing that every plan of a sound graph within `budget_bytes` takes, infinite where none can
/// fit. At each moment, the cheapest that must be away then (Dantzig 1957, the fractional knapsack). What a plan takes
/// beyond it may be the plan's fault or the bound's.
double seconds_bound(const Graph& graph, int64_t budget_bytes, PlannerOptions options = {});

/// The smallest budget in bytes that a step of a sound graph can do with where it has no plan: what the planner
/// "online" keeps, to a 256th of plain's activation peak, and where the graph has a tier with room for it, the one with
/// all values there that may be moved, if that is less. Of very large graphs it may be an overestimate.
/// `options.refine` has no effect.
int64_t smallest_online_budget(const Graph& graph, PlannerOptions options = {});

/// A planner by name, and what it does in a line.
struct PlannerInfo {
  std::string_view name;         ///< for make_plan() and SessionOptions::planner
  std::string_view description;  ///< one line for people
};
/// All of them, `auto` first.
const std::vector<PlannerInfo>& list_planners();

}  // namespace remat

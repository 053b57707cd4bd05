// cli/planning.h -- plans for one graph and what they cost beside plain: what `remat plan` shows.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <remat/budget.h>
#include <remat/graph.h>
#include <remat/plan.h>
#include <remat/planner.h>
#include <remat/run.h>

namespace remat::cli {

/// Reads a file with the JSON of a graph, or of a run, which has one. Throws Error that names it.
Graph read_graph(const std::string& path);

/// The same for a plan.
Plan read_plan(const std::string& path);

/// The same for a run. A graph is one too, of which no more is known than the name of its file.
Run read_run(const std::string& path);

/// Bytes in a file's name that are no UTF-8 have no place in JSON and SVG.
std::string utf8(const std::string& text);

/// The budget of a plan where none is asked for.
inline constexpr const char* kUsualBudget = "50%";

/// What the step takes where nothing is given up: the measure of every plan.
struct PlainStep {
  explicit PlainStep(const Graph& graph);

  int64_t baseline_bytes;
  int64_t peak_bytes;
  double seconds;

  int64_t activation_bytes() const { return peak_bytes - baseline_bytes; }
  /// What `peak` bytes, baseline included, are of the activation peak; nothing where there is none.
  std::optional<double> activation_percent(int64_t peak) const;
  /// What `extra` seconds are of the step; nothing where it has no time.
  std::optional<double> extra_percent(double extra) const;

  /// `budget` in bytes, baseline included. Bytes or a percentage, no device limit.
  int64_t bytes_of(const Budget& budget) const;
};

/// Values that a plan may give up: those that can be recomputed, packed or moved.
int64_t count_choices(const Graph& graph);

/// What becomes of them.
struct ActionCounts {
  int64_t kept = 0, packed = 0, moved = 0;
  int64_t recomputed = 0;  ///< held from their first recompute on
  int64_t held_later = 0;  ///< held from a later one on, or never
};
ActionCounts count_actions(const Graph& graph, const Plan& plan);

/// What became of asking one planner for a plan.
struct Attempt {
  std::string planner;
  std::optional<Plan> plan;
  std::optional<int64_t> smallest_peak_bytes;  ///< no plan: what the planner's smallest needs, where that is known
  std::exception_ptr error;                    ///< no plan: why
  std::string message;                         ///< the error's
  double planning_seconds = 0;
};

/// Catches Error, BudgetError included: a plan that fails is a result too.
Attempt try_plan(const Graph& graph, int64_t budget_bytes, const std::string& planner, PlannerOptions options);

}  // namespace remat::cli

// src/plan/forecast.h -- what steps of a size will take, told by recorded steps of other sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

struct Forecast {
  int64_t baseline_bytes = 0;
  int64_t plain_peak_bytes = 0;
  /// The smallest budget for a session's first step, which has no plan, and its times may be other ones than those
  /// recorded.
  int64_t smallest_budget_bytes = 0;
  double plain_seconds = 0;
};

/// Where the recorded steps ran the same operators, their graphs are extrapolated. Where they did not (depth; experts
/// that no token came to), the figures are.
class Forecaster {
 public:
  /// A recorded step; another one of this size takes its place.
  void add(int64_t size, Graph graph);
  bool empty() const { return known_.empty(); }
  bool knows(int64_t size) const { return known_.contains(size); }
  /// Whether graphs are extrapolated.
  bool same_operators() const { return alike_.size() > 1 || known_.size() == 1; }

  /// Computed once for each size.
  const Forecast& at(int64_t size);
  /// Of a step that follows a plan within the budget; nothing where there is none.
  std::optional<double> seconds_within(int64_t size, int64_t budget_bytes);
  /// For a step of this size; nothing where none fits, or its graph cannot be told.
  std::optional<Plan> plan(int64_t size, int64_t budget_bytes) const;

 private:
  std::optional<Graph> graph(int64_t size) const;

  std::map<int64_t, Graph> known_;
  std::map<int64_t, Graph> alike_;  ///< those of the structure of the largest
  std::map<int64_t, Forecast> forecasts_;
};

}  // namespace remat

// src/plan/exhaustive.h -- the fastest plan of all within a memory limit, by branch and bound (Land and Doig 1960, "An
// Automatic Method of Solving Discrete Programming Problems", Econometrica 28).
//
// Values are decided one after another, the newest first, with those not decided yet kept. What replays a value depends
// on newer values alone, so deciding older ones can only add replays. At the moment of a partial plan's peak, the bytes
// above the limit have to be freed by values that are not decided and are idle then: the cheapest of them, by the byte,
// are a lower bound of what that adds (Dantzig 1957, the fractional knapsack). Where the sum is no better than the best
// known plan, no plan that begins so is tried.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <remat/planner.h>

#include "plan/incremental.h"
#include "plan/pareto_front.h"

namespace remat::planners {

/// Tries all plans of a graph, but those that cannot be the fastest. Not thread-safe. Deterministic.
class Exhaustive {
 public:
  /// `front` has at least one point, and must outlive this.
  Exhaustive(const Graph& graph, PlannerOptions options, ParetoFront& front);

  /// Offers the front the fastest plan within `limit` bytes, baseline included. Gives up after so much `work` (as
  /// IncrementalSimulator::work() counts it), with what was found until then. Returns whether it came to the end: then
  /// no plan within the limit is faster than the front's.
  bool run(int64_t limit, int64_t work);

 private:
  /// What may free memory at some moment: a value, at the least that this takes.
  struct Item {
    size_t place = 0;  ///< in `values_`
    double seconds_per_byte = 0;
    int64_t bytes = 0;
  };

  double seconds_to_fit(size_t decided);
  int64_t work() const { return simulator_->work() + items_read_; }
  void decide(size_t place);
  void apply(int32_t value, Action action);

  const Graph& graph_;
  const bool pack_;
  ParetoFront& front_;
  std::optional<IncrementalSimulator> simulator_;  ///< made by the first run(), which gives up large graphs at once
  std::vector<int32_t> values_;                    ///< that may be away, newest first
  std::vector<Item> items_;                        ///< cheapest by the byte first
  std::vector<size_t> first_idle_, last_;          ///< by value: events
  int64_t limit_ = 0, end_of_work_ = 0;
  int64_t items_read_ = 0;  ///< in all: a nanosecond each
};

}  // namespace remat::planners

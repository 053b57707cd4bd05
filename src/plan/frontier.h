// src/plan/frontier.h -- the whole trade-off of a graph: for every budget the fastest fates that were found.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

/// Fates that nothing else found beats in both memory and time, by peak.
class Frontier {
 public:
  struct Point {
    double seconds = 0;
    Fates fates;
  };

  /// The fastest within `limit`; null if nothing fits.
  const Point* within(int64_t limit) const {
    const auto next = points_.upper_bound(limit);
    return next == points_.begin() ? nullptr : &std::prev(next)->second;
  }
  /// The one with the lowest peak, and that peak. There must be one.
  const Point& lowest() const { return points_.begin()->second; }
  int64_t lowest_peak() const { return points_.begin()->first; }

  void offer(const Simulation& run, const Fates& fates) {
    const Point* const known = within(run.peak_bytes);
    if (known != nullptr && known->seconds <= run.seconds) return;
    auto beaten = points_.lower_bound(run.peak_bytes);
    while (beaten != points_.end() && beaten->second.seconds >= run.seconds) beaten = points_.erase(beaten);
    points_[run.peak_bytes] = {run.seconds, fates};
  }

 private:
  std::map<int64_t, Point> points_;  ///< seconds fall as peaks rise
};

/// What `auto` chooses from. Does not depend on a budget, so that more of it is never slower.
Frontier explore(const Graph& graph, PlannerOptions options);
/// Searches on for what is faster within `limit`.
void refine(const Graph& graph, Frontier& frontier, int64_t limit, PlannerOptions options);

}  // namespace remat::planners

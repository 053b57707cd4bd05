// src/plan/frontier.h -- the whole trade-off of a graph: for every budget the fastest actions that were found.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

/// Actions that nothing else found beats in both memory and time, by peak.
class Frontier {
 public:
  struct Point {
    double seconds = 0;
    Actions actions;
  };

  /// The fastest within `limit`; null if nothing fits.
  const Point* within(int64_t limit) const {
    const auto next = points_.upper_bound(limit);
    return next == points_.begin() ? nullptr : &std::prev(next)->second;
  }
  /// The one with the lowest peak, and that peak. There must be one.
  const Point& lowest() const { return points_.begin()->second; }
  int64_t lowest_peak() const { return points_.begin()->first; }
  /// By peak.
  const std::map<int64_t, Point>& points() const { return points_; }

  void offer(const Simulation& run, const Actions& actions) { offer(run.peak_bytes, run.seconds, actions); }
  void offer(const Frontier& others) {
    for (const auto& [peak, point] : others.points_) offer(peak, point.seconds, point.actions);
  }

 private:
  void offer(int64_t peak, double seconds, const Actions& actions) {
    const Point* const known = within(peak);
    if (known != nullptr && known->seconds <= seconds) return;
    auto beaten = points_.lower_bound(peak);
    while (beaten != points_.end() && beaten->second.seconds >= seconds) beaten = points_.erase(beaten);
    points_[peak] = {seconds, actions};
  }

  std::map<int64_t, Point> points_;  ///< seconds fall as peaks rise
};

/// What `auto` chooses from. Does not depend on a budget, so that more of it is never slower.
Frontier explore(const Graph& graph, PlannerOptions options);
/// Searches on for what is faster within `limit`.
void refine(const Graph& graph, Frontier& frontier, int64_t limit, PlannerOptions options);

}  // namespace remat::planners

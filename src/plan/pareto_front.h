// src/plan/pareto_front.h -- the whole trade-off of a graph: for every budget the fastest actions that were found.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

/// Actions that nothing else found beats in both memory and time, by peak.
class ParetoFront {
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

  /// False if something known is as good.
  bool offer(const Simulation& run, const Actions& actions) { return offer(run.peak_bytes, run.seconds, actions); }
  void offer(const ParetoFront& others) {
    for (const auto& [peak, point] : others.points_) offer(peak, point.seconds, point.actions);
  }

 private:
  bool offer(int64_t peak, double seconds, const Actions& actions) {
    const Point* const known = within(peak);
    if (known != nullptr && known->seconds <= seconds) return false;
    auto beaten = points_.lower_bound(peak);
    while (beaten != points_.end() && beaten->second.seconds >= seconds) beaten = points_.erase(beaten);
    points_[peak] = {seconds, actions};
    return true;
  }

  std::map<int64_t, Point> points_;  ///< seconds fall as peaks rise
};

/// What `auto` finds within `limit`, in bytes, baseline included, and, less well searched for, plans for larger and
/// smaller limits: for steps of other sizes. With `options.refine` it searches sixteen times as long within `limit`.
ParetoFront plans_around(const Graph& graph, int64_t limit, PlannerOptions options);
/// What it finds within each of `limits`, and what has the lowest peak, in one: less is never faster.
ParetoFront plans_of_curve(const Graph& graph, std::vector<int64_t> limits, PlannerOptions options);

}  // namespace remat::planners

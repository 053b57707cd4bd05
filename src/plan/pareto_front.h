// src/plan/pareto_front.h -- the trade-off of a graph between memory and time: for every budget the fastest known plan.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

/// The plans of one graph, by peak, than which no known plan has both a lower peak and fewer seconds.
class ParetoFront {
 public:
  struct Point {
    double seconds = 0;
    Actions actions;
  };

  /// The fastest plan with a peak of at most `limit` bytes; null where there is none.
  const Point* within(int64_t limit) const {
    const auto next = points_.upper_bound(limit);
    return next == points_.begin() ? nullptr : &std::prev(next)->second;
  }
  /// The plan with the lowest peak, and that peak. The front must not be empty.
  const Point& lowest() const { return points_.begin()->second; }
  int64_t lowest_peak() const { return points_.begin()->first; }
  /// By peak.
  const std::map<int64_t, Point>& points() const { return points_; }

  /// Adds a plan. False, and nothing changes, where a known plan has no higher peak and no more seconds.
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

/// What a search finds.
struct FoundPlans {
  ParetoFront front;    ///< of all plans
  ParetoFront unmoved;  ///< of those that move no values: the plans for when moves turn out to be slower than predicted

  void offer(const FoundPlans& others) {
    front.offer(others.front);
    unmoved.offer(others.unmoved);
  }
};

/// The plans that `auto` finds within `limit` bytes, baseline included, and, with less work, within some larger and
/// smaller limits, for steps of other sizes. With `options.refine` it searches sixteen times as long within `limit`.
FoundPlans plans_around(const Graph& graph, int64_t limit, PlannerOptions options);
/// The plans that `auto` finds within each of `limits`, and those with the lowest peak.
ParetoFront plans_of_curve(const Graph& graph, std::vector<int64_t> limits, PlannerOptions options);

}  // namespace remat::planners

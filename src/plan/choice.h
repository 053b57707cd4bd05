// src/plan/choice.h -- of the plans that were found for graphs of the same structure, the fastest that fits a graph of
// other sizes. It takes some dozen simulations and no search, because it is done while the step runs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

class Choice {
 public:
  /// `limit` in bytes, baseline included. `evicted`: by value, whether the step has evicted it already, whatever the
  /// plan says; empty: none is.
  Choice(const Graph& graph, int64_t limit, std::vector<bool> evicted);

  void offer(const Actions& actions);
  /// Offers the plans of the front by bisection, since for other sizes their peaks and seconds are in nearly the same
  /// order.
  void offer(const ParetoFront& front);
  /// Does any plan that was offered fit?
  bool fits() const { return fits_; }
  /// The fastest plan that fits.
  const Actions& best() const { return best_; }
  const Simulation& run() const { return run_; }

 private:
  bool try_out(const Actions& actions);

  const Graph& graph_;
  const int64_t limit_;
  const std::vector<bool> evicted_;
  Simulator simulator_;
  bool fits_ = false;
  Actions best_, tried_;
  Simulation run_;
};

}  // namespace remat::planners

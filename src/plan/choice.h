// src/plan/choice.h -- of actions that were found for graphs of the same structure, the fastest that fit a graph of
// other sizes. Some dozen simulations and no search: it is done while the step runs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

class Choice {
 public:
  /// `away`: by value, what has been given up already, whatever is chosen; empty: nothing. `limit` in bytes, baseline
  /// included.
  Choice(const Graph& graph, int64_t limit, std::vector<bool> away);

  void offer(const Actions& actions);
  /// What it has, by bisection, since peaks and seconds of other sizes come in nearly the same order.
  void offer(const ParetoFront& front);
  /// Does anything that was offered fit?
  bool fits() const { return fits_; }
  /// The fastest that fits.
  const Actions& best() const { return best_; }
  const Simulation& run() const { return run_; }

 private:
  bool try_out(const Actions& actions);

  const Graph& graph_;
  const int64_t limit_;
  const std::vector<bool> away_;
  Simulator simulator_;
  bool fits_ = false;
  Actions best_, tried_;
  Simulation run_;
};

}  // namespace remat::planners

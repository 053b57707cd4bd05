// src/plan/greedy.h -- drops and packs values until the simulated peak is within a budget.
//
// Of the values that are idle at the moment of the peak, the one with the lowest price is dropped or packed. The price
// of dropping is the seconds that it adds to the replays to come, per byte that it frees: the seconds of the operators
// between the value and kept values, without operators that other dropped values need already.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

class Greedy {
 public:
  Greedy(const Graph& graph, Simulator& simulator, PlannerOptions options);

  /// The droppable values, ascending.
  const std::vector<int32_t>& droppable() const { return droppable_; }
  /// Changes `actions` until their simulated peak is within the budget, or no value can be dropped or packed at the
  /// peak, or the simulations have replayed `most_replays` operators. Returns the simulation of the result.
  Simulation descend(Actions& actions, int64_t budget, int64_t most_replays = INT64_MAX);

 private:
  struct Choice {
    int32_t value = -1;
    Action action = Action::kKeep;
    double price = 0;
    int64_t freed = 0;
  };

  /// A value is idle from event `idle` to before event `use`.
  struct Window {
    size_t idle = 0, use = 0;
  };

  bool is_idle(int32_t value, size_t event) const;
  bool is_alive(const Actions& actions, int32_t value, size_t event) const;
  double added_seconds(const Actions& actions, int32_t value, bool pay);
  Choice choice_of(const Actions& actions, int32_t value);
  bool evict(Actions& actions, size_t event, int64_t excess);

  const Graph& graph_;
  Simulator& simulator_;
  const PlannerOptions options_;
  std::vector<int32_t> droppable_;
  std::vector<Window> windows_;  ///< by value: its first
  std::vector<std::vector<Window>>
      later_;                 ///< by value: its others, where backward goes through a retained graph again
  std::vector<size_t> free_;  ///< by value: the event; 0: it is not saved
  std::vector<char> paid_;    ///< by operator: dropped values need it already
  std::vector<int32_t> stack_, seen_;
};

}  // namespace remat::planners

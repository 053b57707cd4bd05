// src/plan/greedy.h -- gives values up until the simulated peak is within a budget.
//
// Look at the moment of the peak. Of the values that are put away then and not asked for yet, give up the one that adds
// the fewest seconds to the replays to come for each byte that it frees; packing competes at its own price. The seconds
// that a loss adds are those of the operators between the value and what is kept that no other loss has paid for yet.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {

class Greedy {
 public:
  Greedy(const Graph& graph, Simulator& simulator, PlannerOptions options);

  /// Values with `droppable`, in order.
  const std::vector<int32_t>& droppable() const { return droppable_; }
  /// Changes `actions` until their simulated peak is within the budget, or nothing can be given up at the peak, or
  /// simulations have replayed `most_replays` operators. Returns what the simulator says of them.
  Simulation descend(Actions& actions, int64_t budget, int64_t most_replays = INT64_MAX);

 private:
  struct Choice {
    int32_t value = -1;
    Action action = Action::kKeep;
    double price = 0;
    int64_t freed = 0;
  };

  /// A value may be away from `idle` until `use`, in events.
  struct Window {
    size_t idle = 0, use = 0;
  };

  bool may_be_away(int32_t value, size_t event) const;
  bool is_there(const Actions& actions, int32_t value, size_t event) const;
  double added_seconds(const Actions& actions, int32_t value, bool pay);
  Choice choice_of(const Actions& actions, int32_t value);
  bool give_up(Actions& actions, size_t event, int64_t excess);

  const Graph& graph_;
  Simulator& simulator_;
  const PlannerOptions options_;
  std::vector<int32_t> droppable_;
  std::vector<Window> windows_;             ///< by value: the first
  std::vector<std::vector<Window>> later_;  ///< by value: the others, in graphs that backward goes through again
  std::vector<size_t> free_;                ///< events, by value; 0: never saved
  std::vector<char> paid_;                  ///< operators that replays run anyway
  std::vector<int32_t> stack_, seen_;
};

}  // namespace remat::planners

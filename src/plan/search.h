// src/plan/search.h -- looks for faster actions within a limit by simulated annealing (Kirkpatrick, Gelatt and Vecchi
// 1983, "Optimization by Simulated Annealing", Science 220) with moves of every size.
//
// A move gives one action to a set of values: one value, a run of values of neighbouring age, or a run of like values
// (results of like operators, of the same size; every second, fourth or eighth of them, or all but these). Often
// another set gets the opposite action in the same move: what one frees the other may keep. The largest sets come
// first, single values last. What is made small is seconds, and bytes above the limit at the steepest price that the
// front has there. IncrementalSimulator judges every move, and all that it judges is offered to the front.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <remat/planner.h>

#include "plan/incremental.h"
#include "plan/pareto_front.h"
#include "plan/random.h"

namespace remat::planners {

/// Not thread-safe. The same graph, front, limits and work give the same front.
class Search {
 public:
  /// `front` has at least one point, and must outlive the search.
  Search(const Graph& graph, PlannerOptions options, ParetoFront& front);

  /// Searches from the fastest actions within `limit`, in bytes, or from those with the lowest peak where nothing fits,
  /// until so much work is done (IncrementalSimulator::work()).
  void run(int64_t limit, int64_t work);

 private:
  enum class Change : uint8_t { kKeep, kRecompute, kLater, kEarlier, kEachTime, kPack };
  /// Places in `choices_`.
  struct Set {
    size_t place = 0;  ///< around which it lies
    size_t size = 1;
    bool alike = false;
  };

  void anneal(int64_t limit, int64_t work);
  bool is_worth_remembering(const Simulation& run, int64_t limit) const;
  /// False if it changed nothing.
  bool try_move(double progress, bool over_limit);
  Set random_set(double progress);
  Set another_set(const Set& set);
  Change random_change(bool over_limit);
  void change_set(const Set& set, Change change);
  void change_value(int32_t value, Change change);
  Action action_of(int32_t value, Change change) const;
  double seconds_per_byte(int64_t limit) const;

  const Graph& graph_;
  const bool pack_;
  ParetoFront& front_;
  IncrementalSimulator simulator_;
  SplitMix random_;
  std::vector<int32_t> choices_;                        ///< values that may be away, by age
  std::vector<std::vector<size_t>> alike_;              ///< places of like values, by age
  std::vector<std::pair<size_t, size_t>> among_alike_;  ///< by place: which of `alike_`, and where in it
  double mean_seconds_ = 0;                             ///< of an operator
  bool changed_ = false;                                ///< by the move in progress
};

}  // namespace remat::planners

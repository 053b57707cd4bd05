// src/plan/search.h -- searches for faster plans within a memory limit by simulated annealing (Kirkpatrick, Gelatt and
// Vecchi 1983, "Optimization by Simulated Annealing", Science 220) with moves of every size.
//
// A move gives one action to a set of values: one value, a run of values that were made one after another, or a run of
// values of one operator class (results of the same operator, of the same size); of a run sometimes every second,
// fourth or eighth value, or all others. In half of the moves another set gets an action too, often the opposite one:
// the first frees memory that the second uses. Moves of large sets come first, moves of single values last. The cost is
// the seconds of the plan, plus its bytes above the limit, at its peak and in all sections of the step, at the steepest
// price per byte that the Pareto front has there. IncrementalSimulator judges every move, and plans near the limit are
// offered to the front.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <remat/planner.h>

#include <remat/support/mix.h>
#include "plan/incremental.h"
#include "plan/pareto_front.h"

namespace remat::planners {

/// Not thread-safe. Deterministic: the same graph, front, limits and work give the same front.
class Search {
 public:
  /// `front` has at least one point, and must outlive the search.
  Search(const Graph& graph, PlannerOptions options, ParetoFront& front);

  /// Searches from the fastest plan of the front within `limit` bytes, or from the one with the lowest peak where none
  /// fits, until IncrementalSimulator::work() has risen by `work`. `heat` is a factor of the first temperature.
  void run(int64_t limit, int64_t work, double heat = 1);

 private:
  enum class Change : uint8_t { kKeep, kRecompute, kLater, kEarlier, kEachTime, kPack };
  /// A run of values, by their places in `values_` or among the values of one operator class.
  struct Set {
    size_t place = 0;  ///< in `values_`, of a value that the run contains
    size_t size = 1;
    bool of_one_class = false;
  };

  void anneal(int64_t limit, int64_t work, double hot);
  bool is_worth_remembering(const Simulation& run, int64_t limit) const;
  /// Tries a random move. Returns false if no action changed.
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
  support::SplitMix random_;
  std::vector<int32_t> values_;                            ///< that may be dropped, ascending
  std::vector<std::vector<size_t>> classes_;               ///< operator classes: the places of their values, ascending
  std::vector<std::pair<size_t, size_t>> place_in_class_;  ///< by place: which of `classes_`, and where in it
  double mean_seconds_ = 0;                                ///< of an operator
  bool changed_ = false;                                   ///< the move in progress has changed an action
};

}  // namespace remat::planners

// src/plan/simulate.h -- the memory and the time of a step under a plan, from the graph alone.
//
// Every plan is judged by this one simulator; planners never certify themselves. It does what src/run/replay.cpp does,
// operator by operator: a change there is a change here.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

#include "plan/replay_walk.h"

namespace remat {

struct Simulation {
  int64_t peak_bytes = 0;  ///< baseline included
  size_t peak_event = 0;   ///< during which it is reached, the first if several
  double seconds = 0;      ///< of replays, packing and unpacking
  int64_t replays = 0;     ///< operators
  bool stopped = false;    ///< before the end of the step: the rest says what was seen so far
};

/// Runs a step of a sound graph under one plan after another. Not thread-safe: it keeps its arrays.
class Simulator {
 public:
  explicit Simulator(const Graph& graph);

  /// `actions`: one for each value, as in a valid plan. Stops once more than `most_replays` operators have been
  /// replayed.
  Simulation run(const std::vector<Action>& actions, int64_t most_replays = INT64_MAX);

 private:
  enum class State : uint8_t {
    kGone,       ///< a replay must make it
    kPresent,    ///< alive, for as long as it is saved
    kPacked,     ///< held packed
    kTransient,  ///< alive within a replay
  };

  void give_up(int32_t value, Action action);
  void use(int32_t value);
  void free(int32_t value);
  void unpack(int32_t value);
  void replay(int32_t target);
  void run_operator(int32_t index, int32_t target);
  bool stays(int32_t value, int32_t target);
  void raise(int64_t bytes);

  /// An event that changes what is there, with what plain's memory does until the next such event.
  struct Change {
    size_t event = 0;
    GraphEvent::Kind kind = GraphEvent::Kind::kOther;
    int32_t value = -1;
    int32_t uses = 0;  ///< where the value is put away: until it is so again
    int64_t rise = 0, delta = 0;
  };

  const Graph& graph_;
  std::vector<Change> changes_;
  std::vector<State> initial_;  ///< before the forward pass has dropped anything

  // Of the run in progress.
  const std::vector<Action>* actions_ = nullptr;
  std::vector<State> states_;
  std::vector<bool> has_bits_;  ///< the packed form is there, beside the contents or instead of them
  std::vector<int32_t> uses_;   ///< to come until the value is put away again
  std::vector<int32_t> made_;   ///< times that replays have made the value since it was put away
  ReplayWalk walk_;
  int64_t level_ = 0;
  int64_t highest_ = 0;  ///< during the event in progress
  Simulation result_;
};

}  // namespace remat

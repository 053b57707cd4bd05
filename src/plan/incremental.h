// src/plan/incremental.h -- simulates a step again after a few actions have changed, in time that grows with the part
// of the step that they affect.
//
// The step's changes are divided into sections. For the actions in force, each section remembers the values that it
// used, the states in which it left them, and its memory and time. When other actions are tried, a section runs again
// only if it used a value whose state differs now; of the other sections only the level of memory at the beginning
// changes. The result is that of Simulator, to the byte; seconds are summed in another order.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

#include "plan/simulate.h"
#include "plan/step_machine.h"

namespace remat {

/// Not thread-safe.
class IncrementalSimulator {
 public:
  /// For a sound graph. At first the actions in force keep everything.
  explicit IncrementalSimulator(const Graph& graph);

  /// The actions in force, with the changes that are tried.
  const std::vector<Action>& actions() const { return actions_; }
  /// Tries another action, in addition to the changes that are tried already.
  void change(int32_t value, Action action);
  /// Simulates a step with the changes that are tried. Stops once replays have run more than `most_replays` operators;
  /// then the changes must be rejected.
  Simulation run(int64_t most_replays = INT64_MAX);
  /// Puts in force the changes that the last run() simulated.
  void accept();
  /// Undoes the changes that are tried.
  void reject();
  /// Rejects, puts other actions in force, and simulates them. From then on Simulation::excess is above `limit` bytes.
  void restart(const std::vector<Action>& actions, int64_t limit);
  /// The sections that Simulation::excess is a sum of: about twice the square root of the number of events.
  int64_t sections() const { return static_cast<int64_t>(sections_.size()); }
  /// The simulation of the actions in force.
  const Simulation& in_force() const { return result_; }
  /// The work of all runs so far, roughly in nanoseconds of a machine of 2024. Counted, not timed, so that plans do not
  /// depend on the machine.
  int64_t work() const { return work_; }

 private:
  /// The state in which a section left a value.
  struct Entry {
    uint32_t section = 0;
    ValueState state;
  };
  struct Section {
    const StepChange* first = nullptr;
    const StepChange* end = nullptr;
    int64_t level = 0;      ///< bytes that it adds to the level of memory
    int64_t peak = 0;       ///< bytes above the level at its beginning
    size_t peak_event = 0;  ///< the first event with that peak
    double seconds = 0;
    int64_t replays = 0;
  };
  /// A section that has run with the changes that are tried.
  struct Tried {
    uint32_t section = 0;
    Section outcome;
    std::vector<std::pair<int32_t, ValueState>> left;  ///< the values that it used
  };
  /// The states for the machine: loads that of a value at its first use in a section.
  struct States {
    IncrementalSimulator* owner;
    ValueState& operator[](int32_t value) const { return owner->state_of(value); }
  };

  ValueState& state_of(int32_t value) {
    if (loaded_[value] != load_) load(value);
    return states_[value];
  }
  void load(int32_t value);
  const ValueState& before(int32_t value, uint32_t section) const;
  void try_section(uint32_t index);
  void compare(int32_t value, uint32_t section);
  void wake(int32_t value, int64_t after);

  const Graph& graph_;
  const std::vector<StepChange> changes_;
  const std::vector<ValueState> initial_;
  std::vector<Section> sections_;
  std::vector<std::vector<Entry>> history_;  ///< by value: the sections that used it, ascending
  std::vector<std::vector<int32_t>> used_;   ///< by section: the values that it used
  std::vector<Action> actions_;
  std::vector<std::pair<int32_t, Action>> changed_;  ///< values with changes that are tried, and their actions in force
  Simulation result_;

  // Of the run in progress.
  States view_{this};
  PlanPolicy policy_{&actions_};
  StepMachine<States, PlanPolicy> machine_;
  std::vector<ValueState> states_;
  std::vector<uint32_t> loaded_;     ///< by value: the number of the last section run that used it
  std::vector<uint32_t> different_;  ///< by value: the last run() in which its state differs from that in force
  std::vector<uint32_t> waiting_;    ///< by section: the last run() in which it has to run
  std::vector<Tried> tried_;
  size_t tried_count_ = 0;
  std::vector<int32_t> used_now_;
  int64_t limit_ = INT64_MAX;
  uint32_t load_ = 0, run_ = 1, section_ = 0;
  Simulation candidate_;
  int64_t work_ = 0;
};

}  // namespace remat

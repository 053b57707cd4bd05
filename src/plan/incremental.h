// src/plan/incremental.h -- simulates a step anew where a few actions changed, in time that depends on what they
// change.
//
// The step's changes are divided into sections. Of the actions in force it is known for each section which values it
// met, in which state it left them, and what it took. Where other actions are tried, only sections run that met one of
// the values that are in another state then; all others do what they did, at another level of memory. What comes out is
// what Simulator says, to the byte; seconds are summed up in another order.
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
  /// Of a sound graph. The actions in force keep everything.
  explicit IncrementalSimulator(const Graph& graph);

  /// The actions in force, with the changes that are being tried.
  const std::vector<Action>& actions() const { return actions_; }
  /// Tries another action, beside those that are being tried already.
  void change(int32_t value, Action action);
  /// A step with what is being tried. Stops once more than `most_replays` operators have run: then nothing can be
  /// accepted.
  Simulation run(int64_t most_replays = INT64_MAX);
  /// What is being tried is in force from now on, and is what the last run() simulated.
  void accept();
  /// Takes back what is being tried.
  void reject();
  /// Rejects, and has other actions in force, which run.
  void restart(const std::vector<Action>& actions);
  /// Of the actions in force.
  const Simulation& in_force() const { return result_; }
  /// What all runs so far cost, about, in nanoseconds of a machine of 2024: counted, not timed, so that plans do not
  /// depend on the machine.
  int64_t work() const { return work_; }

 private:
  /// What a section left a value in.
  struct Entry {
    uint32_t section = 0;
    ValueState state;
  };
  struct Section {
    const StepChange* first = nullptr;
    const StepChange* end = nullptr;
    int64_t level = 0;      ///< that it adds
    int64_t peak = 0;       ///< above the level at its beginning
    size_t peak_event = 0;  ///< the first with it
    double seconds = 0;
    int64_t replays = 0;
  };
  /// A section that has run with what is being tried.
  struct Tried {
    uint32_t section = 0;
    Section outcome;
    std::vector<std::pair<int32_t, ValueState>> left;  ///< the values that it met
  };
  /// The machine's view: loads the state of a value when it is first asked for in a section.
  struct States {
    IncrementalSimulator* owner;
    ValueState& operator[](int32_t value) { return owner->state_of(value); }
  };

  ValueState& state_of(int32_t value) {
    if (loaded_[value] != load_) load(value);
    return states_[value];
  }
  void load(int32_t value);
  const ValueState& before(int32_t value, uint32_t section) const;
  void try_section(uint32_t section);
  void compare(int32_t value, uint32_t section);
  void wake(int32_t value, int64_t after);

  const Graph& graph_;
  const std::vector<StepChange> changes_;
  const std::vector<ValueState> initial_;
  std::vector<Section> sections_;
  std::vector<std::vector<Entry>> history_;  ///< by value: the sections that met it, ascending
  std::vector<std::vector<int32_t>> met_;    ///< by section: the values that it met
  std::vector<Action> actions_;
  std::vector<std::pair<int32_t, Action>> changed_;  ///< what is being tried: the actions before
  Simulation result_;

  // Of the run in progress.
  States view_{this};
  PlanPolicy policy_{&actions_};
  StepMachine<States, PlanPolicy> machine_;
  std::vector<ValueState> states_;
  std::vector<uint32_t> loaded_;     ///< by value: the last section run that asked for it
  std::vector<uint32_t> different_;  ///< by value: the last run() in which its state is another than in force
  std::vector<uint32_t> waiting_;    ///< by section: the last run() in which it must run
  std::vector<Tried> tried_;
  size_t tried_count_ = 0;
  std::vector<int32_t> met_now_;
  uint32_t load_ = 0, run_ = 1, section_ = 0;
  Simulation candidate_;
  int64_t work_ = 0;
};

}  // namespace remat

// src/plan/step_machine.h -- simulates the operators and values of a step: the only code of the planner that does.
//
// It goes through the events of a graph, drops and recomputes values, and follows memory and time, operator by operator
// as src/replay/replay.cpp does: a change there is a change here. Two things are the caller's. Which values are dropped
// is up to a policy: a plan (PlanPolicy), or eviction under a memory limit (OnlineStep). The states of values are all
// stored (Simulator, OnlineStep), or only those that a section of the step reads (IncrementalSimulator).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

#include "plan/costs.h"
#include "plan/replay_walk.h"

namespace remat {

/// A value's state at one moment of a step.
struct ValueState {
  enum class Memory : uint8_t {
    kGone,       ///< freed: a replay has to recompute it
    kPresent,    ///< alive until it is freed or evicted
    kPacked,     ///< held packed
    kTransient,  ///< alive until the replay in progress has read it
  };
  Memory memory = Memory::kGone;
  bool has_bits = false;   ///< the packed form is alive, beside the contents or instead of them
  int32_t uses = 0;        ///< uses to come until the value is idle again
  int32_t recomputes = 0;  ///< by replays, since it became idle

  bool operator==(const ValueState&) const = default;
};

/// An event that changes which values are alive, with the rise and change of plain's memory until the next change.
struct StepChange {
  size_t event = 0;
  GraphEvent::Kind kind = GraphEvent::Kind::kOther;
  int32_t value = -1;
  int32_t uses = 0;  ///< of kIdle: uses until the value is idle again
  int64_t rise = 0, delta = 0;
};

/// Which events have a StepChange of their own. The others are part of the one before them.
enum class ChangesOf : uint8_t { kAliveValues, kEveryEvent };

/// A sound graph's changes, after a first one without an event.
std::vector<StepChange> changes_of(const Graph& graph, ChangesOf events = ChangesOf::kAliveValues);
/// By value: when the step begins, before the forward pass has dropped anything.
std::vector<ValueState> initial_states(const Graph& graph);

/// The states of values, with a note of which were looked at.
struct WatchedStates {
  std::vector<ValueState> states;
  std::vector<int32_t> touched;

  ValueState& operator[](int32_t value) {
    touched.push_back(value);
    return states[static_cast<size_t>(value)];
  }
};

/// The policy that follows a plan.
struct PlanPolicy {
  /// Of the plan, by value. Must be set before the machine runs.
  const std::vector<Action>* actions = nullptr;

  void begin(const StepChange& /*change*/) {}
  Action action(int32_t value) const { return (*actions)[value]; }
  bool holds(int32_t value, int32_t times) const { return (*actions)[value].holds(times); }
  int64_t evict(int64_t /*level*/) { return 0; }
};

/// `States`: states[value] is a reference to the ValueState of a value, valid until the machine asks for another one
/// and the same whenever it asks.
///
/// `Policy` has these functions.
/// - begin(change): called before each change.
/// - action(value): the action for a value that becomes idle. Not asked for values that a scope's policy drops.
/// - holds(value, times): whether a value that replays have made `times` times is held until its next use.
/// - evict(level): called before memory rises to `level` bytes. May drop values that no replay reads, by changing their
///   states. Returns the bytes that it freed.
/// It may have two more, to know what memory rises for next.
/// - will_replay(op, target): the operator runs again, for a replay of value `target`.
/// - will_unpack(value)
template <class States, class Policy>
class StepMachine {
 public:
  using Memory = ValueState::Memory;

  StepMachine(const Graph& graph, States& states, Policy& policy)
      : graph_(graph), states_(states), policy_(policy), walk_(graph) {}

  /// Runs the changes from `first` to before `end`, and calls `visit(change, highest level in it)` after each, until
  /// that returns false.
  template <class Visit>
  void run(const StepChange* first, const StepChange* end, Visit visit) {
    for (const StepChange* change = first; change != end; ++change) {
      highest_ = level;
      policy_.begin(*change);
      switch (change->kind) {
        case GraphEvent::Kind::kIdle:
          become_idle(change->value, change->uses);
          break;
        case GraphEvent::Kind::kUse:
          use(change->value);
          break;
        case GraphEvent::Kind::kFree:
          free(change->value);
          break;
        case GraphEvent::Kind::kOperator:
        case GraphEvent::Kind::kOther:
          break;
      }
      raise(change->rise);
      level += change->delta;
      if (!visit(*change, highest_)) return;
    }
  }

  int64_t level = 0;    ///< bytes alive
  double seconds = 0;   ///< of replays, packing and unpacking so far
  int64_t replays = 0;  ///< operators so far

  /// How often the replay in progress has still to read the value.
  int32_t reads_to_come(int32_t value) const { return walk_.reads[value]; }
  const ReplayOperators& operators() const { return walk_.operators; }

 private:
  int64_t bytes(int32_t value) const { return graph_.values[value].bytes; }

  /// Memory is about to rise by `more` bytes, perhaps for a short time.
  void raise(int64_t more) {
    level -= policy_.evict(level + more);
    highest_ = std::max(highest_, level + more);
  }

  void become_idle(int32_t value, int32_t uses) {
    const GraphValue& v = graph_.values[value];
    ValueState& state = states_[value];
    state.uses = uses;
    state.recomputes = 0;
    const Action action = v.dropped ? Action::kRecompute : policy_.action(value);
    if (action.kind == Action::Kind::kKeep) return;
    level -= v.bytes;
    const bool packs = action.kind == Action::Kind::kPack;
    state.memory = packs ? Memory::kPacked : Memory::kGone;
    if (!packs || state.has_bits) return;
    state.has_bits = true;
    level += v.packed_bytes;
    seconds += kPackSecondsPerByte * static_cast<double>(v.bytes);
  }

  void use(int32_t value) {
    if (states_[value].memory == Memory::kPacked) unpack(value);
    if (states_[value].memory == Memory::kGone && graph_.values[value].returns()) replay(value);
    --states_[value].uses;
  }

  void free(int32_t value) {
    ValueState& state = states_[value];
    if (state.memory == Memory::kPresent) level -= bytes(value);
    if (state.has_bits) level -= graph_.values[value].packed_bytes;
    state.has_bits = false;
    state.memory = Memory::kGone;
  }

  void unpack(int32_t value) {
    if constexpr (requires { policy_.will_unpack(value); }) policy_.will_unpack(value);
    raise(bytes(value));
    level += bytes(value);
    states_[value].memory = Memory::kPresent;
    seconds += kUnpackSecondsPerByte * static_cast<double>(bytes(value));
  }

  void replay(int32_t target) {
    // No replay begins within another one, so the list stays valid: inputs are present, packed, or made before.
    const auto held = [this](int32_t value) { return states_[value].memory != Memory::kGone; };
    for (const int32_t index : walk_.operators_for(target, held)) run_operator(index, target);
    walk_.reads[target] = 0;
  }

  bool stays(int32_t value, ValueState& state, int32_t target) {
    ++state.recomputes;
    if (value == target) return true;
    return state.uses > 0 && graph_.values[value].returns() && policy_.holds(value, state.recomputes);
  }

  void run_operator(int32_t index, int32_t target) {
    for (const int32_t input : walk_.operators.inputs(index)) {
      if (states_[input].memory == Memory::kPacked) unpack(input);
    }
    for (const int32_t input : walk_.operators.overwritten(index)) {
      // In place where only this operator reads the old contents, and this replay made them; otherwise on a copy.
      if (states_[input].memory != Memory::kTransient || walk_.reads[input] != 1) continue;
      level -= bytes(input);
      states_[input].memory = Memory::kGone;
    }
    int64_t results_bytes = 0;
    for (const int32_t made : walk_.operators.results(index)) results_bytes += bytes(made);
    if constexpr (requires { policy_.will_replay(index, target); }) policy_.will_replay(index, target);
    raise(results_bytes + walk_.operators.scratch_bytes(index));
    seconds += walk_.operators.seconds(index);
    ++replays;
    for (const int32_t made : walk_.operators.results(index)) {
      ValueState& state = states_[made];
      const bool absent = state.memory == Memory::kGone || state.memory == Memory::kPacked;
      if (absent && stays(made, state, target)) {
        state.memory = Memory::kPresent;
      } else if (state.memory == Memory::kGone && walk_.reads[made] > 0) {
        state.memory = Memory::kTransient;
      } else {
        continue;
      }
      level += bytes(made);
    }
    for (const int32_t input : walk_.operators.inputs(index)) {
      if (--walk_.reads[input] > 0 || states_[input].memory != Memory::kTransient) continue;
      level -= bytes(input);
      states_[input].memory = Memory::kGone;
    }
  }

  const Graph& graph_;
  States& states_;
  Policy& policy_;
  ReplayWalk walk_;
  int64_t highest_ = 0;  ///< during the change in progress
};

}  // namespace remat

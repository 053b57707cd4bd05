// src/plan/step_machine.h -- what a step does with its values under a plan: the one place that says so.
//
// It goes through the events of a graph that change what is alive, and does what src/run/replay.cpp does, operator by
// operator: a change there is a change here. Where the states of values are kept is the caller's: all of them at hand
// (Simulator), or those that a part of the step meets (IncrementalSimulator).
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
    kGone,       ///< a replay must make it
    kPresent,    ///< alive, for as long as it is saved
    kPacked,     ///< held packed
    kTransient,  ///< alive within a replay
  };
  Memory memory = Memory::kGone;
  bool has_bits = false;  ///< the packed form is there, beside the contents or instead of them
  int32_t uses = 0;       ///< to come until the value is idle again
  int32_t made = 0;       ///< times that replays have made it since it was idle

  bool operator==(const ValueState&) const = default;
};

/// An event that changes what is alive, with what plain's memory does until the next such event.
struct StepChange {
  size_t event = 0;
  GraphEvent::Kind kind = GraphEvent::Kind::kOther;
  int32_t value = -1;
  int32_t uses = 0;  ///< where the value becomes idle: until it is so again
  int64_t rise = 0, delta = 0;
};

/// A sound graph's changes, the first of which is none.
std::vector<StepChange> changes_of(const Graph& graph);
/// By value: when the step begins, before the forward pass has dropped anything.
std::vector<ValueState> initial_states(const Graph& graph);

/// `States`: states[value] is a reference to the ValueState of a value, valid until the machine asks for another one
/// and the same whenever it asks.
template <class States>
class StepMachine {
 public:
  using Memory = ValueState::Memory;

  StepMachine(const Graph& graph, States& states) : graph_(graph), states_(states), walk_(graph) {}

  /// Runs the changes from `first` to before `end`, for each `visit(change, highest level in it)`.
  template <class Visit>
  void run(const std::vector<Action>& actions, const StepChange* first, const StepChange* end, Visit visit) {
    actions_ = &actions;
    for (const StepChange* change = first; change != end; ++change) {
      highest_ = level;
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

 private:
  int64_t bytes(int32_t value) const { return graph_.values[value].bytes; }
  void raise(int64_t more) { highest_ = std::max(highest_, level + more); }

  void become_idle(int32_t value, int32_t uses) {
    const GraphValue& v = graph_.values[value];
    ValueState& state = states_[value];
    state.uses = uses;
    state.made = 0;
    const Action action = v.dropped ? Action::kRecompute : (*actions_)[value];
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
    if (states_[value].memory == Memory::kGone && graph_.values[value].producer >= 0) replay(value);
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
    level += bytes(value);
    raise(0);
    states_[value].memory = Memory::kPresent;
    seconds += kUnpackSecondsPerByte * static_cast<double>(bytes(value));
  }

  void replay(int32_t target) {
    // run_operator() may not come back here, so the list is safe: inputs are present, packed, or made on the way.
    const auto held = [this](int32_t value) { return states_[value].memory != Memory::kGone; };
    for (const int32_t index : walk_.operators_for(target, held)) run_operator(index, target);
    walk_.reads[target] = 0;
  }

  bool stays(int32_t value, ValueState& state, int32_t target) {
    ++state.made;
    if (value == target) return true;
    return state.uses > 0 && graph_.values[value].returns() && (*actions_)[value].holds(state.made);
  }

  void run_operator(int32_t index, int32_t target) {
    for (const int32_t input : walk_.operators.inputs(index)) {
      if (states_[input].memory == Memory::kPacked) unpack(input);
    }
    for (const int32_t input : walk_.operators.overwritten(index)) {
      // The old contents become the new ones where this replay made them and nobody else reads them.
      if (states_[input].memory != Memory::kTransient || walk_.reads[input] != 1) continue;
      level -= bytes(input);
      states_[input].memory = Memory::kGone;
    }
    for (const int32_t made : walk_.operators.results(index)) level += bytes(made);
    raise(walk_.operators.scratch_bytes(index));
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
        level -= bytes(made);
      }
    }
    for (const int32_t input : walk_.operators.inputs(index)) {
      if (--walk_.reads[input] > 0 || states_[input].memory != Memory::kTransient) continue;
      level -= bytes(input);
      states_[input].memory = Memory::kGone;
    }
  }

  const Graph& graph_;
  States& states_;
  const std::vector<Action>* actions_ = nullptr;
  ReplayWalk walk_;
  int64_t highest_ = 0;  ///< during the change in progress
};

}  // namespace remat

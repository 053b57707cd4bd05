// src/plan/step_machine.h -- simulates the operators and values of a step: the only code of the planner that does.
//
// It goes through the events of a graph, drops and recomputes values, and follows memory and time, operator by operator
// as src/replay/replay.cpp does: a change there is a change here. A step has two resources: the threads that compute,
// and the copies of values that are moved (move_order.h), one after another; it waits for a copy where the order says
// that its bytes are gone or there. Two things are the caller's. Which values are dropped
// is up to a policy: a plan (PlanPolicy), or eviction under a memory limit (OnlineStep). The states of values are all
// stored (Simulator, OnlineStep), or only those that a section of the step reads (IncrementalSimulator).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>

#include "plan/form_costs.h"
#include "plan/replay_walk.h"
#include "plan/step_times.h"
#include "util/move_order.h"

namespace remat {

/// A value's state at one moment of a step.
struct ValueState {
  enum class Memory : uint8_t {
    kGone,       ///< freed: a replay has to recompute it
    kPresent,    ///< alive until it is freed or evicted
    kInForm,     ///< held in `form` alone
    kTransient,  ///< alive until the replay in progress has read it
  };
  Memory memory = Memory::kGone;
  bool has_form = false;  ///< the form has the contents, beside the tensor or instead of it
  Form form = Form::kPacked;
  int32_t uses = 0;        ///< uses to come until the value is idle again
  int32_t recomputes = 0;  ///< by replays, since it became idle

  /// Does a form hold bytes of the step's memory?
  bool is_packed() const { return has_form && form == Form::kPacked; }
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

  /// For steps that move values, whose graph has a tier: the times of the plain step, and the bytes above which memory
  /// runs short. Before the first run().
  void set_moves(const StepTimes* times, int64_t limit) {
    times_ = times;
    limit_ = limit;
    copied_at_.assign(graph_.values.size(), 0);
    order_.clear();
    copies_end_ = 0;
    tier_level_ = tier_peak = 0;
  }

  /// Runs the changes from `first` to before `end`, and calls `visit(change, highest level in it)` after each, until
  /// that returns false.
  template <class Visit>
  void run(const StepChange* first, const StepChange* end, Visit visit) {
    for (const StepChange* change = first; change != end; ++change) {
      highest_ = level;
      event_ = change->event;
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

  int64_t level = 0;      ///< bytes alive
  double seconds = 0;     ///< of replays, packing, unpacking and waiting for copies so far
  int64_t replays = 0;    ///< operators so far
  int64_t tier_peak = 0;  ///< the most bytes that the tier has held

  /// How often the replay in progress has still to read the value.
  int32_t reads_to_come(int32_t value) const { return walk_.reads[value]; }
  const ReplayOperators& operators() const { return walk_.operators; }

 private:
  static constexpr int64_t kTierBlock = 4096;  ///< of a file past the page cache

  int64_t bytes(int32_t value) const { return graph_.values[value].bytes; }

  /// Memory is about to rise by `more` bytes, perhaps for a short time.
  void raise(int64_t more) {
    if (times_ != nullptr && level + more > limit_) make_room(more);
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
    if (action == Action::kMove) {
      move_out(value);
      return;
    }
    level -= v.bytes;
    const bool packs = action.kind == Action::Kind::kHold;
    state.memory = packs ? Memory::kInForm : Memory::kGone;
    if (!packs || state.has_form) return;
    state.has_form = true;
    state.form = Form::kPacked;
    level += v.packed_bytes;
    seconds += kPackingCosts.out.compute * static_cast<double>(v.bytes);
  }

  void use(int32_t value) {
    if (is_moved(value) && states_[value].memory == Memory::kPresent &&
        leave_order(value) == MoveOrder::Place::kLeaving) {
      states_[value].has_form = false;
      tier_level_ -= tier_bytes(value);
      begin_to_come();
    }
    if (states_[value].memory == Memory::kInForm) restore(value);
    if (states_[value].memory == Memory::kGone && graph_.values[value].returns()) replay(value);
    --states_[value].uses;
  }

  void free(int32_t value) {
    if (is_moved(value)) {
      leave_order(value);
      tier_level_ -= tier_bytes(value);
    }
    ValueState& state = states_[value];
    if (state.memory == Memory::kPresent) level -= bytes(value);
    if (state.is_packed()) level -= graph_.values[value].packed_bytes;
    state.has_form = false;
    state.memory = Memory::kGone;
  }

  /// From its form into a tensor.
  void restore(int32_t value) {
    if (states_[value].form == Form::kMoved) {
      move_in(value);
    } else {
      unpack(value);
    }
  }

  void unpack(int32_t value) {
    if constexpr (requires { policy_.will_unpack(value); }) policy_.will_unpack(value);
    raise(bytes(value));
    level += bytes(value);
    states_[value].memory = Memory::kPresent;
    seconds += kPackingCosts.in.compute * static_cast<double>(bytes(value));
  }

  // ---- Values that are moved ----

  bool is_moved(int32_t value) const {
    return times_ != nullptr && states_[value].has_form && states_[value].form == Form::kMoved;
  }

  /// What the tier holds it in: whole blocks.
  int64_t tier_bytes(int32_t value) const { return (bytes(value) + kTierBlock - 1) / kTierBlock * kTierBlock; }

  /// Since the step began.
  double now() const { return times_->stretches[event_ + 1].begin_seconds + seconds; }

  /// The value's copy begins as soon as those before it have ended.
  void copy(int32_t value, const FormCosts::Seconds& per_byte) {
    const auto count = static_cast<double>(bytes(value));
    const double each = graph_.tier->copy_seconds;
    seconds += each + per_byte.compute * count;
    copies_end_ = std::max(copies_end_, now()) + each + per_byte.copy * count;
    copied_at_[value] = copies_end_;
  }

  void wait_for_copy(int32_t value) { seconds += std::max(0.0, copied_at_[value] - now()); }

  void move_out(int32_t value) {
    ValueState& state = states_[value];
    if (state.has_form) {  // it has been away before
      order_.leave_at_once(static_cast<uint32_t>(value));
      has_gone(value);
      return;
    }
    state.has_form = true;
    state.form = Form::kMoved;
    tier_level_ += tier_bytes(value);
    tier_peak = std::max(tier_peak, tier_level_);
    copy(value, graph_.tier->costs.out);
    order_.leave(static_cast<uint32_t>(value));
    while (const auto gone = order_.next_gone()) {
      wait_for_copy(static_cast<int32_t>(*gone));
      has_gone(static_cast<int32_t>(*gone));
    }
  }

  void has_gone(int32_t value) {
    level -= bytes(value);
    states_[value].memory = Memory::kInForm;
  }

  /// Memory runs short: what is leaving goes now, and what is coming has to wait, as far as it takes.
  void make_room(int64_t more) {
    while (level + more > limit_) {
      const auto gone = order_.oldest_gone();
      if (!gone) break;
      wait_for_copy(static_cast<int32_t>(*gone));
      if (std::ranges::find(reading_, static_cast<int32_t>(*gone)) != reading_.end()) {
        order_.take(*gone);  // it stays
      } else {
        has_gone(static_cast<int32_t>(*gone));
      }
    }
    while (level + more > limit_) {
      const auto coming = order_.stop_coming();
      if (!coming) break;
      wait_for_copy(static_cast<int32_t>(*coming));
      level -= bytes(static_cast<int32_t>(*coming));
    }
  }

  void move_in(int32_t value) {
    if (order_.take(static_cast<uint32_t>(value)) != MoveOrder::Place::kComing) begin_copy_in(value);
    wait_for_copy(value);
    states_[value].memory = Memory::kPresent;
    begin_to_come();
  }

  void begin_to_come() {
    while (const auto next = order_.next_coming()) {
      if (level + bytes(static_cast<int32_t>(*next)) > limit_) {
        order_.defer(*next);
        return;
      }
      begin_copy_in(static_cast<int32_t>(*next));
    }
  }

  void begin_copy_in(int32_t value) {
    raise(bytes(value));
    level += bytes(value);
    copy(value, graph_.tier->costs.in);
  }

  /// It is asked for, freed, or a replay has made it.
  MoveOrder::Place leave_order(int32_t value) {
    const MoveOrder::Place place = order_.take(static_cast<uint32_t>(value));
    if (place == MoveOrder::Place::kComing) level -= bytes(value);
    return place;
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
      if (states_[input].memory == Memory::kInForm) restore(input);
      if (times_ != nullptr) reading_.push_back(input);
    }
    for (const int32_t input : walk_.operators.overwritten(index)) {
      // In place where only this operator reads the old contents, and this replay made them; otherwise on a copy.
      if (states_[input].memory != Memory::kTransient || walk_.reads[input] != 1) continue;
      end_transient(input);
    }
    int64_t results_bytes = 0;
    for (const int32_t made : walk_.operators.results(index)) results_bytes += bytes(made);
    if constexpr (requires { policy_.will_replay(index, target); }) policy_.will_replay(index, target);
    raise(results_bytes + walk_.operators.scratch_bytes(index));
    reading_.clear();
    seconds += walk_.operators.seconds(index);
    ++replays;
    for (const int32_t made : walk_.operators.results(index)) {
      ValueState& state = states_[made];
      const bool absent = state.memory == Memory::kGone || state.memory == Memory::kInForm;
      if (absent && stays(made, state, target)) {
        if (is_moved(made)) leave_order(made);
        state.memory = Memory::kPresent;
      } else if (absent && walk_.reads[made] > 0) {
        state.memory = Memory::kTransient;
      } else {
        continue;
      }
      level += bytes(made);
    }
    for (const int32_t input : walk_.operators.inputs(index)) {
      if (--walk_.reads[input] > 0 || states_[input].memory != Memory::kTransient) continue;
      end_transient(input);
    }
  }

  void end_transient(int32_t value) {
    level -= bytes(value);
    states_[value].memory = states_[value].has_form ? Memory::kInForm : Memory::kGone;
  }

  const Graph& graph_;
  States& states_;
  Policy& policy_;
  ReplayWalk walk_;
  int64_t highest_ = 0;  ///< during the change in progress
  size_t event_ = 0;     ///< of the change in progress

  // Of values that are moved.
  const StepTimes* times_ = nullptr;  ///< null: none are
  int64_t limit_ = INT64_MAX;
  MoveOrder order_;
  std::vector<int32_t> reading_;   ///< inputs that the operator of the replay in progress holds
  std::vector<double> copied_at_;  ///< by value: when its last copy ends, in seconds since the step began
  double copies_end_ = 0;          ///< when the last of all copies ends
  int64_t tier_level_ = 0;         ///< bytes that the tier holds
};

}  // namespace remat

#include "plan/simulate.h"

#include <algorithm>

#include "plan/costs.h"

namespace remat {

Simulator::Simulator(const Graph& graph) : graph_(graph), initial_(graph.values.size(), State::kGone), walk_(graph) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].producer < 0) initial_[v] = State::kPresent;
  }
  changes_.emplace_back();
  std::vector<size_t> put_away(graph.values.size(), 0);  // changes, by value: when it was last
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    const bool idle = event.kind == GraphEvent::Kind::kIdle, free = event.kind == GraphEvent::Kind::kFree;
    const bool use = event.kind == GraphEvent::Kind::kUse;
    // What is neither put away nor freed was not saved: plain is rid of it when the forward pass is over.
    if (idle || free) initial_[event.index] = State::kPresent;
    if (free || ((idle || use) && graph.values[event.index].returns())) {
      changes_.push_back({e, event.kind, event.index, 0, event.rise, event.delta});
      if (idle) put_away[event.index] = changes_.size() - 1;
      if (use) ++changes_[put_away[event.index]].uses;
    } else {
      Change& last = changes_.back();
      last.rise = std::max(last.rise, last.delta + event.rise);
      last.delta += event.delta;
    }
  }
}

Simulation Simulator::run(const std::vector<Action>& actions, int64_t most_replays) {
  actions_ = &actions;
  states_ = initial_;
  uses_.assign(graph_.values.size(), 0);
  made_.assign(graph_.values.size(), 0);
  has_bits_.assign(graph_.values.size(), false);
  result_ = {};
  level_ = graph_.baseline_bytes;
  for (const Change& change : changes_) {
    highest_ = level_;
    switch (change.kind) {
      case GraphEvent::Kind::kIdle:
        uses_[change.value] = change.uses;
        made_[change.value] = 0;
        give_up(change.value, graph_.values[change.value].dropped ? Action::kRecompute : actions[change.value]);
        break;
      case GraphEvent::Kind::kUse:
        use(change.value);
        break;
      case GraphEvent::Kind::kFree:
        free(change.value);
        break;
      case GraphEvent::Kind::kOperator:
      case GraphEvent::Kind::kOther:
        break;
    }
    raise(change.rise);
    level_ += change.delta;
    if (highest_ > result_.peak_bytes) {
      result_.peak_bytes = highest_;
      result_.peak_event = change.event;
    }
    if (result_.replays > most_replays) {
      result_.stopped = true;
      break;
    }
  }
  return result_;
}

void Simulator::raise(int64_t bytes) { highest_ = std::max(highest_, level_ + bytes); }

void Simulator::give_up(int32_t value, Action action) {
  const GraphValue& v = graph_.values[value];
  if (action.kind == Action::Kind::kKeep) return;
  level_ -= v.bytes;
  const bool packs = action.kind == Action::Kind::kPack;
  states_[value] = packs ? State::kPacked : State::kGone;
  if (!packs || has_bits_[value]) return;
  has_bits_[value] = true;
  level_ += v.packed_bytes;
  result_.seconds += kPackSecondsPerByte * static_cast<double>(v.bytes);
}

void Simulator::use(int32_t value) {
  if (states_[value] == State::kPacked) unpack(value);
  if (states_[value] == State::kGone && graph_.values[value].producer >= 0) replay(value);
  --uses_[value];
}

void Simulator::free(int32_t value) {
  if (states_[value] == State::kPresent) level_ -= graph_.values[value].bytes;
  if (has_bits_[value]) level_ -= graph_.values[value].packed_bytes;
  has_bits_[value] = false;
  states_[value] = State::kGone;
}

void Simulator::unpack(int32_t value) {
  level_ += graph_.values[value].bytes;
  raise(0);
  states_[value] = State::kPresent;
  result_.seconds += kUnpackSecondsPerByte * static_cast<double>(graph_.values[value].bytes);
}

void Simulator::replay(int32_t target) {
  // run_operator() may not come back here, so the list is safe: inputs are present, packed, or made on the way.
  const auto held = [this](int32_t value) { return states_[value] != State::kGone; };
  for (const int32_t index : walk_.operators_for(target, held)) run_operator(index, target);
  walk_.reads[target] = 0;
}

bool Simulator::stays(int32_t value, int32_t target) {
  const int32_t times = ++made_[value];
  if (value == target) return true;
  return uses_[value] > 0 && graph_.values[value].returns() && (*actions_)[value].holds(times);
}

void Simulator::run_operator(int32_t index, int32_t target) {
  for (const int32_t input : walk_.operators.inputs(index)) {
    if (states_[input] == State::kPacked) unpack(input);
  }
  for (const int32_t input : walk_.operators.overwritten(index)) {
    // The old contents become the new ones where this replay made them and nobody else reads them.
    if (states_[input] != State::kTransient || walk_.reads[input] != 1) continue;
    level_ -= graph_.values[input].bytes;
    states_[input] = State::kGone;
  }
  for (const int32_t made : walk_.operators.results(index)) level_ += graph_.values[made].bytes;
  raise(walk_.operators.scratch_bytes(index));
  result_.seconds += walk_.operators.seconds(index);
  ++result_.replays;
  for (const int32_t made : walk_.operators.results(index)) {
    State& state = states_[made];
    const bool absent = state == State::kGone || state == State::kPacked;
    if (absent && stays(made, target)) {
      state = State::kPresent;
    } else if (state == State::kGone && walk_.reads[made] > 0) {
      state = State::kTransient;
    } else {
      level_ -= graph_.values[made].bytes;
    }
  }
  for (const int32_t input : walk_.operators.inputs(index)) {
    if (--walk_.reads[input] > 0 || states_[input] != State::kTransient) continue;
    level_ -= graph_.values[input].bytes;
    states_[input] = State::kGone;
  }
}

}  // namespace remat

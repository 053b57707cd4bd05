#include "plan/simulate.h"

#include <algorithm>

namespace remat {

std::vector<StepChange> changes_of(const Graph& graph, ChangesOf events) {
  std::vector<StepChange> changes(1);
  std::vector<size_t> became_idle(graph.values.size(), 0);  // by value: its last idle change
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    const bool idle = event.kind == GraphEvent::Kind::kIdle, use = event.kind == GraphEvent::Kind::kUse;
    const bool changes_alive =
        event.kind == GraphEvent::Kind::kFree || ((idle || use) && graph.values[event.index].returns());
    if (changes_alive || events == ChangesOf::kEveryEvent) {
      changes.push_back({e, event.kind, event.index, 0, event.step_rise(), event.delta});
      if (idle) became_idle[event.index] = changes.size() - 1;
      if (use) ++changes[became_idle[event.index]].uses;
    } else {
      StepChange& last = changes.back();
      last.rise = std::max(last.rise, last.delta + event.step_rise());
      last.delta += event.delta;
    }
  }
  return changes;
}

std::vector<ValueState> initial_states(const Graph& graph) {
  std::vector<ValueState> states(graph.values.size());
  const auto is_present = [&](size_t v) { states[v].memory = ValueState::Memory::kPresent; };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].producer < 0) is_present(v);
  }
  for (const GraphEvent& event : graph.events) {
    // A value without an idle or free event was not saved: plain has freed it by the end of the forward pass.
    const bool saved = event.kind == GraphEvent::Kind::kIdle || event.kind == GraphEvent::Kind::kFree;
    if (saved) is_present(static_cast<size_t>(event.index));
  }
  return states;
}

Simulator::Simulator(const Graph& graph)
    : graph_(graph), changes_(changes_of(graph)), initial_(initial_states(graph)), machine_(graph, states_, policy_) {}

Simulation Simulator::run(const std::vector<Action>& actions, int64_t limit, int64_t most_replays) {
  states_ = initial_;
  policy_.actions = &actions;
  machine_.level = graph_.baseline_bytes;
  machine_.seconds = 0;
  machine_.replays = 0;
  const bool moves = graph_.tier && std::ranges::find(actions, Action::kMove) != actions.end();
  if (moves && !times_) {
    times_ = step_times(graph_);
    every_change_ = changes_of(graph_, ChangesOf::kEveryEvent);
  }
  const std::vector<StepChange>& changes = moves ? every_change_ : changes_;
  machine_.set_moves(moves ? &*times_ : nullptr, limit);
  Simulation result;
  machine_.run(changes.data(), changes.data() + changes.size(), [&](const StepChange& change, int64_t highest) {
    if (highest > result.peak_bytes) {
      result.peak_bytes = highest;
      result.peak_event = change.event;
    }
    result.stopped = machine_.replays > most_replays;
    return !result.stopped;
  });
  result.seconds = machine_.seconds;
  result.replays = machine_.replays;
  result.tier_bytes = machine_.tier_peak;
  return result;
}

int64_t kept_peak_bytes(const Graph& graph) {
  return Simulator(graph).run(std::vector<Action>(graph.values.size(), Action::kKeep)).peak_bytes;
}

}  // namespace remat

#include "plan/greedy.h"

#include <algorithm>

#include "plan/form_costs.h"

namespace remat::planners {
namespace {

/// So that of values whose recompute costs nothing the larger is dropped first.
constexpr double kLeastSeconds = 1e-7;
/// A value whose price rose by a smaller factor is not put back in the queue.
constexpr double kTolerance = 1.0001;
/// Operators that a price adds up: that of a longer replay is high enough.
constexpr size_t kMostSeen = 2000;

}  // namespace

Greedy::Greedy(const Graph& graph, Simulator& simulator, PlannerOptions options)
    : graph_(graph),
      simulator_(simulator),
      options_(options),
      windows_(graph.values.size(), {graph.events.size(), graph.events.size()}),
      later_(graph.values.size()),
      free_(graph.values.size(), 0),
      paid_(graph.operators.size(), 0) {
  std::vector<size_t> next_use(graph.values.size(), graph.events.size());
  for (size_t e = graph.events.size(); e-- > 0;) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kUse || event.kind == GraphEvent::Kind::kFree) next_use[event.index] = e;
    if (event.kind == GraphEvent::Kind::kFree) free_[event.index] = e;
    if (event.kind != GraphEvent::Kind::kIdle) continue;
    Window& window = windows_[event.index];
    if (window.idle < graph.events.size()) later_[event.index].push_back(window);
    window = {e, next_use[event.index]};
    if (free_[event.index] == 0) free_[event.index] = graph.events.size();
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].droppable) droppable_.push_back(static_cast<int32_t>(v));
  }
}

bool Greedy::is_idle(int32_t value, size_t event) const {
  const auto in = [event](const Window& window) { return window.idle <= event && event < window.use; };
  return in(windows_[value]) || std::any_of(later_[value].begin(), later_[value].end(), in);
}

/// Can a replay at `event` read the value without recomputing it?
bool Greedy::is_alive(const Actions& actions, int32_t value, size_t event) const {
  const GraphValue& of = graph_.values[value];
  if (of.producer < 0) return true;
  return free_[value] > event && !of.dropped && (actions[value] == Action::kKeep || actions[value] == Action::kPack);
}

/// Seconds of the operators that recompute `value`, without those that are paid for. With `pay` they are from now on.
double Greedy::added_seconds(const Actions& actions, int32_t value, bool pay) {
  double seconds = 0;
  stack_.assign(1, value);
  seen_.clear();
  while (!stack_.empty() && seen_.size() < kMostSeen) {
    const int32_t producer = graph_.values[stack_.back()].producer;
    stack_.pop_back();
    if (producer < 0 || paid_[producer] != 0) continue;
    paid_[producer] = 1;
    seen_.push_back(producer);
    const GraphOperator& op = graph_.operators[producer];
    seconds += op.replay_seconds;
    for (const int32_t input : op.inputs) {
      if (!is_alive(actions, input, windows_[value].use)) stack_.push_back(input);
    }
  }
  if (!pay) {
    for (const int32_t op : seen_) paid_[op] = 0;
  }
  return seconds * static_cast<double>(1 + later_[value].size());
}

/// The cheaper of dropping and packing a value; its `value` is -1 where neither is possible.
Greedy::Choice Greedy::choice_of(const Actions& actions, int32_t v) {
  Choice best;
  const auto consider = [&](Action action, double seconds, int64_t freed) {
    if (freed <= 0) return;
    const double price = (seconds + kLeastSeconds) / static_cast<double>(freed);
    if (best.value < 0 || price < best.price) best = {v, action, price, freed};
  };
  const GraphValue& value = graph_.values[v];
  if (actions[v] == Action::kKeep) {
    consider(Action::kRecompute, added_seconds(actions, v, false), value.bytes);
    if (options_.pack && value.packed_bytes > 0) {
      consider(Action::kPack, packing_seconds(value.bytes), value.bytes - value.packed_bytes);
    }
  } else if (actions[v] == Action::kPack) {
    consider(Action::kRecompute, added_seconds(actions, v, false), value.packed_bytes);
  }
  return best;
}

/// Drops or packs the cheapest values that are idle at `event`, until `excess` bytes are free. False if there is none.
bool Greedy::evict(Actions& actions, size_t event, int64_t excess) {
  const auto dearer = [](const Choice& a, const Choice& b) {
    return a.price != b.price ? a.price > b.price : a.value > b.value;
  };
  std::vector<Choice> heap;
  for (const int32_t v : droppable_) {
    if (!is_idle(v, event)) continue;
    if (const Choice choice = choice_of(actions, v); choice.value >= 0) heap.push_back(choice);
  }
  std::make_heap(heap.begin(), heap.end(), dearer);
  const bool any = !heap.empty();
  while (excess > 0 && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), dearer);
    // Other choices may have changed its price since. (A price that fell is noticed late; the search makes up for
    // that.)
    heap.back() = choice_of(actions, heap.back().value);
    if (heap.size() > 1 && heap.back().price > heap.front().price * kTolerance) {
      std::push_heap(heap.begin(), heap.end(), dearer);
      continue;
    }
    const Choice choice = heap.back();
    heap.pop_back();
    actions[choice.value] = choice.action;
    if (choice.action == Action::kRecompute) added_seconds(actions, choice.value, /*pay=*/true);
    excess -= choice.freed;
  }
  return any;
}

Simulation Greedy::descend(Actions& actions, int64_t budget, int64_t most_replays) {
  std::fill(paid_.begin(), paid_.end(), 0);
  for (const int32_t v : droppable_) {
    if (actions[v].kind == Action::Kind::kRecompute) added_seconds(actions, v, /*pay=*/true);
  }
  for (;;) {
    const Simulation now = simulator_.run(actions);
    const int64_t excess = now.peak_bytes - budget;
    most_replays -= now.replays;
    if (excess <= 0 || most_replays <= 0) return now;
    if (!evict(actions, now.peak_event, excess)) return now;
  }
}

}  // namespace remat::planners

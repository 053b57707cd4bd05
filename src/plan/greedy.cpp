#include "plan/greedy.h"

#include <algorithm>

#include "plan/costs.h"

namespace remat::planners {
namespace {

/// So that of values that cost nothing the larger goes first.
constexpr double kLeastSeconds = 1e-7;

}  // namespace

Greedy::Greedy(const Graph& graph, Simulator& simulator, PlannerOptions options)
    : graph_(graph),
      simulator_(simulator),
      options_(options),
      idle_(graph.values.size(), graph.events.size()),
      first_use_(graph.values.size(), graph.events.size()),
      held_(graph.values.size(), false),
      paid_(graph.operators.size(), 0) {
  for (size_t e = graph.events.size(); e-- > 0;) {
    const GraphEvent& event = graph.events[e];
    if (event.kind == GraphEvent::Kind::kIdle) idle_[event.index] = e;
    if (event.kind == GraphEvent::Kind::kUse || event.kind == GraphEvent::Kind::kFree) first_use_[event.index] = e;
    if (event.kind == GraphEvent::Kind::kFree || event.kind == GraphEvent::Kind::kIdle) held_[event.index] = true;
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].droppable) droppable_.push_back(static_cast<int32_t>(v));
  }
}

bool Greedy::is_there(const Fates& fates, int32_t value) const {
  if (graph_.values[value].producer < 0) return true;
  return held_[value] && (fates[value] == Fate::kKeep || fates[value] == Fate::kPack);
}

/// Seconds of the operators that bring `value` back, those paid for left out. With `pay` they are paid for from now on.
double Greedy::added_seconds(const Fates& fates, int32_t value, bool pay) {
  double seconds = 0;
  stack_.assign(1, value);
  seen_.clear();
  while (!stack_.empty()) {
    const int32_t producer = graph_.values[stack_.back()].producer;
    stack_.pop_back();
    if (producer < 0 || paid_[producer] != 0) continue;
    paid_[producer] = 1;
    seen_.push_back(producer);
    const GraphOperator& op = graph_.operators[producer];
    seconds += op.replay_seconds;
    for (const int32_t input : op.inputs) {
      if (!is_there(fates, input)) stack_.push_back(input);
    }
  }
  if (!pay) {
    for (const int32_t op : seen_) paid_[op] = 0;
  }
  return seconds;
}

Greedy::Choice Greedy::cheapest_at(const Fates& fates, size_t event) {
  Choice best;
  const auto consider = [&](int32_t v, Fate fate, double seconds, int64_t freed) {
    if (freed <= 0) return;
    const double price = (seconds + kLeastSeconds) / static_cast<double>(freed);
    if (best.value < 0 || price < best.price) best = {v, fate, price, freed};
  };
  for (const int32_t v : droppable_) {
    if (idle_[v] > event || first_use_[v] <= event) continue;
    const GraphValue& value = graph_.values[v];
    if (fates[v] == Fate::kKeep) {
      consider(v, Fate::kDrop, added_seconds(fates, v, false), value.bytes);
      if (!options_.pack || value.packed_bytes == 0) continue;
      const double seconds = (kPackSecondsPerByte + kUnpackSecondsPerByte) * static_cast<double>(value.bytes);
      consider(v, Fate::kPack, seconds, value.bytes - value.packed_bytes);
    } else if (fates[v] == Fate::kPack) {
      consider(v, Fate::kDrop, added_seconds(fates, v, false), value.packed_bytes);
    }
  }
  return best;
}

Simulation Greedy::descend(Fates& fates, int64_t budget) {
  std::fill(paid_.begin(), paid_.end(), 0);
  for (const int32_t v : droppable_) {
    if (fates[v] == Fate::kDrop || fates[v] == Fate::kDropAgain) added_seconds(fates, v, /*pay=*/true);
  }
  for (;;) {
    const Simulation now = simulator_.run(fates);
    int64_t excess = now.peak_bytes - budget;
    if (excess <= 0) return now;
    bool any = false;
    while (excess > 0) {
      const Choice choice = cheapest_at(fates, now.peak_event);
      if (choice.value < 0) break;
      any = true;
      fates[choice.value] = choice.fate;
      if (choice.fate == Fate::kDrop) added_seconds(fates, choice.value, /*pay=*/true);
      excess -= choice.freed;
    }
    if (!any) return now;
  }
}

}  // namespace remat::planners

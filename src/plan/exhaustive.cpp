#include "plan/exhaustive.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/form_costs.h"

namespace remat::planners {
namespace {

/// The latest time from which a value is held. Where a value of the same operator is not decided, it cannot be told how
/// often a replay will make it: then so many times are tried.
constexpr int64_t kLatestHeld = 8, kLatestHeldOfSeveral = 3;
/// With more it never comes to an end.
constexpr size_t kMostValues = 512;

bool same_outcome(const Simulation& a, const Simulation& b) {
  return a.seconds == b.seconds && a.peak_bytes == b.peak_bytes && a.replays == b.replays && a.excess == b.excess;
}

}  // namespace

Exhaustive::Exhaustive(const Graph& graph, PlannerOptions options, ParetoFront& front)
    : graph_(graph),
      pack_(options.pack),
      front_(front),
      first_idle_(graph.values.size(), graph.events.size()),
      last_(graph.values.size(), 0) {
  // A value that is not used after it was idle costs nothing to drop.
  std::vector<bool> used(graph.values.size(), true), always_used(graph.values.size(), true);
  for (size_t e = 0; e < graph.events.size(); ++e) {
    const GraphEvent& event = graph.events[e];
    const int32_t v = event.index;
    if (event.kind == GraphEvent::Kind::kOperator || event.kind == GraphEvent::Kind::kOther) continue;
    if (event.kind == GraphEvent::Kind::kIdle) first_idle_[v] = std::min(first_idle_[v], e);
    if (event.kind != GraphEvent::Kind::kUse) always_used[v] = always_used[v] && used[v];
    used[v] = event.kind == GraphEvent::Kind::kUse;
    last_[v] = e;
  }
  for (auto v = static_cast<int32_t>(graph.values.size()); v-- > 0;) {
    if (graph.values[v].returns()) values_.push_back(v);
  }
  std::vector<bool> overwritten(graph.values.size(), false), read(graph.values.size(), false);
  for (const GraphOperator& op : graph.operators) {
    for (const int32_t v : op.overwritten) overwritten[v] = true;
    for (const int32_t v : op.inputs) read[v] = true;
  }
  for (size_t place = 0; place < values_.size(); ++place) {
    const int32_t v = values_[place];
    const GraphValue& value = graph.values[v];
    const GraphOperator& producer = graph.operators[value.producer];
    int64_t together = 0;  // one replay brings back all results of an operator
    bool shared = false;   // newer values may have its operator replayed for a result that is never held
    for (const int32_t result : producer.results) {
      if (graph.values[result].returns()) {
        together += graph.values[result].bytes;
      } else {
        shared = shared || read[result];
      }
    }
    double seconds =
        together > 0 && !shared && always_used[v] ? producer.replay_seconds / static_cast<double>(together) : 0;
    if (pack_ && value.packed_bytes > 0 && value.packed_bytes < value.bytes) {
      seconds = std::min(seconds, packing_seconds(value.bytes) / static_cast<double>(value.bytes - value.packed_bytes));
    }
    // Where it is there, a replay of what overwrites it works on a copy; where it is not, on its own bits.
    const int times = overwritten[v] ? 2 : 1;
    items_.push_back({place, seconds / times, value.bytes * times});
  }
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& a, const Item& b) { return a.seconds_per_byte < b.seconds_per_byte; });
}

bool Exhaustive::run(int64_t limit, int64_t work) {
  if (values_.size() > kMostValues) return false;
  limit_ = limit;
  if (!simulator_) simulator_.emplace(graph_);
  simulator_->restart(std::vector<Action>(graph_.values.size(), Action::kKeep), limit);
  end_of_work_ = this->work() + work;
  decide(0);
  return this->work() <= end_of_work_;
}

/// A lower bound of the seconds that every plan within the limit takes which agrees with the actions in force on the
/// values before place `decided`; infinite where there is none.
double Exhaustive::seconds_to_fit(size_t decided) {
  const Simulation& run = simulator_->in_force();
  int64_t above = run.peak_bytes - limit_;
  double seconds = run.seconds;
  // What the operator of the last decided value makes besides comes back by the same replay.
  const int32_t replayed = decided > 0 ? graph_.values[values_[decided - 1]].producer : -1;
  for (size_t place = decided; place < values_.size() && graph_.values[values_[place]].producer == replayed; ++place) {
    above -= 2 * graph_.values[values_[place]].bytes;
  }
  for (auto item = items_.begin(); above > 0; ++item, ++items_read_) {
    if (item == items_.end()) return std::numeric_limits<double>::infinity();
    const int32_t value = values_[item->place];
    if (item->place < decided || first_idle_[value] > run.peak_event || last_[value] < run.peak_event) continue;
    seconds += item->seconds_per_byte * static_cast<double>(std::min(above, item->bytes));
    above -= item->bytes;
  }
  return seconds;
}

void Exhaustive::apply(int32_t value, Action action) {
  simulator_->change(value, action);
  simulator_->run();
  simulator_->accept();
}

void Exhaustive::decide(size_t place) {
  if (work() > end_of_work_) return;
  const ParetoFront::Point* const best = front_.within(limit_);
  const double least = seconds_to_fit(place);
  if (best != nullptr ? least >= best->seconds : std::isinf(least)) return;
  if (simulator_->in_force().peak_bytes <= limit_) {
    // It fits with all others kept: nothing that begins so is faster.
    front_.offer(simulator_->in_force(), simulator_->actions());
    return;
  }
  if (place == values_.size()) return;
  const int32_t value = values_[place];
  decide(place + 1);
  apply(value, Action::kRecomputeEachTime);
  const Simulation each_time = simulator_->in_force();
  decide(place + 1);
  const bool last_of_operator =
      place + 1 == values_.size() || graph_.values[values_[place + 1]].producer != graph_.values[value].producer;
  for (int64_t from = 1; from <= (last_of_operator ? kLatestHeld : kLatestHeldOfSeveral); ++from) {
    if (from == 1 && graph_.values[value].dropped) continue;  // as kKeep
    apply(value, Action::recompute(from));
    // It is not made as often as that.
    if (last_of_operator && same_outcome(simulator_->in_force(), each_time)) break;
    decide(place + 1);
  }
  if (pack_ && graph_.values[value].packed_bytes > 0) {
    apply(value, Action::kPack);
    decide(place + 1);
  }
  apply(value, Action::kKeep);
}

}  // namespace remat::planners

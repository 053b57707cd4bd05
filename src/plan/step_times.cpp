#include "plan/step_times.h"

#include <algorithm>

namespace remat {
namespace {

class Clock {
 public:
  explicit Clock(const Graph& graph)
      : graph_(graph),
        readers_(graph.values.size()),
        until_(graph.operators.size() + 1, 0),
        weights_(graph.events.size() + 1, 0) {
    times_.stretches.resize(graph.events.size() + 1);
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      const GraphOperator& op = graph.operators[o];
      until_[o + 1] = until_[o] + op.seconds;
      for (const int32_t v : op.inputs) readers_[v].push_back(static_cast<int32_t>(o));
    }
  }

  StepTimes run() {
    const auto is_use = [](const GraphEvent& event) { return event.kind == GraphEvent::Kind::kUse; };
    const auto first_use = static_cast<size_t>(std::ranges::find_if(graph_.events, is_use) - graph_.events.begin());
    std::vector<double> forward(weights_.size(), 0);
    for (size_t s = 0; s < weights_.size(); ++s) {
      // Stretch s lies between events s - 1 and s.
      const bool backward = s > first_use;
      if (backward && is_use(graph_.events[s - 1])) use(graph_.events[s - 1].index);
      if (s < graph_.events.size() && graph_.events[s].kind == GraphEvent::Kind::kOperator) {
        times_.stretches[s].op = graph_.events[s].index;
        forward[s] = graph_.operators[graph_.events[s].index].seconds;
      } else if (backward) {
        times_.stretches[s] = {0, position_, true};
        group_.push_back(s);
      }
    }
    close_group(until_[std::max(position_, -1) + 1]);
    set_times(forward, first_use);
    return std::move(times_);
  }

 private:
  /// Backward is where an operator read or made the value: the last one that it has not been past.
  void use(int32_t value) {
    int32_t latest = graph_.values[value].producer, next = latest <= position_ ? latest : -1;
    for (const int32_t reader : readers_[value]) {
      latest = std::max(latest, reader);
      if (position_ < 0 || reader <= position_) next = std::max(next, reader);
    }
    if (next < 0) next = latest;  // a second backward pass
    if (next < 0 || next == position_) return;
    if (position_ >= 0) {
      close_group(next < position_ ? until_[position_ + 1] - until_[next + 1] : graph_.operators[position_].seconds);
    }
    position_ = next;
  }

  /// The backward pass of the operators from `position_` to the next, whose forward passes took `seconds`.
  void close_group(double seconds) {
    for (const size_t s : group_) weights_[s] = seconds / static_cast<double>(group_.size());
    group_.clear();
  }

  void set_times(const std::vector<double>& forward, size_t first_use) {
    double forward_sum = 0, weight_sum = 0;
    for (size_t s = 0; s < weights_.size(); ++s) {
      forward_sum += forward[s];
      weight_sum += weights_[s];
    }
    const double left = graph_.step_seconds - forward_sum;
    const double scale = left > 0 && weight_sum > 0 ? left / weight_sum : 1;
    times_.timed = forward_sum + weight_sum > 0;
    double now = 0;
    for (size_t s = 0; s < weights_.size(); ++s) {
      times_.stretches[s].begin_seconds = now;
      if (s == first_use + 1) times_.backward_seconds = now;
      now += times_.timed ? forward[s] + scale * weights_[s] : 1;
    }
    times_.end_seconds = now;
    if (first_use >= graph_.events.size()) times_.backward_seconds = now;
  }

  const Graph& graph_;
  StepTimes times_;
  std::vector<std::vector<int32_t>> readers_;  ///< by value: operators
  std::vector<double> until_;                  ///< by operator: seconds of those before it
  std::vector<double> weights_;                ///< by stretch of backward
  int32_t position_ = -1;                      ///< the operator in whose backward pass the step is
  std::vector<size_t> group_;                  ///< the stretches since it got there
};

}  // namespace

StepTimes step_times(const Graph& graph) { return Clock(graph).run(); }

}  // namespace remat

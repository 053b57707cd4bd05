// src/plan/annealing.h -- what searches by simulated annealing share (Kirkpatrick, Gelatt and Vecchi 1983,
// "Optimization by Simulated Annealing", Science 220).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <remat/graph.h>

#include "plan/simulate.h"

namespace remat::planners {

/// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators". Integer arithmetic alone: the same
/// numbers on every machine, every time.
class SplitMix {
 public:
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// From 0 to below `bound`, which is not 0.
  uint64_t below(uint64_t bound) { return next() % bound; }
  /// From 0 to below 1.
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  uint64_t state_ = 1;
};

class Annealing {
 public:
  explicit Annealing(const Graph& graph) {
    for (const GraphOperator& op : graph.operators) forward_seconds_ += op.seconds;
    forward_seconds_ = std::max(forward_seconds_, 1e-9);
    for (const GraphValue& value : graph.values) droppable_bytes_ += value.droppable ? value.bytes : 0;
  }

  /// What is made small: seconds, and bytes above `limit`.
  double cost(const Simulation& run, int64_t limit) const {
    const double seconds_per_byte = seconds_in_excess * forward_seconds_ / static_cast<double>(droppable_bytes_);
    return run.seconds + seconds_per_byte * static_cast<double>(std::max<int64_t>(0, run.peak_bytes - limit));
  }

  /// Whether to go from a cost of `now` to `then`, when `progress` of the search, from 0 to 1, is behind it.
  bool accepts(double now, double then, double progress) {
    if (then <= now) return true;
    const double temperature = hot * forward_seconds_ * std::pow(kCold / hot, progress);
    return random.unit() < std::exp((now - then) / temperature);
  }

  /// Of all operators.
  double forward_seconds() const { return forward_seconds_; }

  static constexpr double kHot = 3e-2, kCold = 1e-4;  ///< temperatures, of the forward pass's time: the first, the last
  double hot = kHot;
  static constexpr double kSecondsInExcess = 6;
  double seconds_in_excess = kSecondsInExcess;  ///< what all droppable bytes in excess would cost, in forward passes
  SplitMix random;

 private:
  double forward_seconds_ = 0;
  int64_t droppable_bytes_ = 1;
};

}  // namespace remat::planners

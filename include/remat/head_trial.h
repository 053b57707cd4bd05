// remat/head_trial.h -- whether the loss of a large vocabulary is made in tiles or whole, by what its steps take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

namespace remat {

/// Tiles have the bits of whole logits (remat/linear_cross_entropy.h), take little memory, and compute a product more.
/// Under a budget that has room for the logits, whole ones may be faster; under one that has none, they are not, for
/// what is dropped in their favour. So a training takes steps in tiles first. Where the budget certainly has room it
/// then takes as many with whole logits, and from there on goes the way whose shortest step was the shorter. Other
/// sizes, or another budget, begin anew. Not thread-safe.
class HeadTrial {
 public:
  static constexpr int kSteps = 6;    ///< that are taken in each way
  static constexpr int kWarmUp = 3;   ///< of them are not compared: they are recorded, and plans are made
  static constexpr int kTensors = 4;  ///< like the logits, that whole ones take at once at most

  /// What a step took.
  struct Taken {
    bool tiles = true;         ///< its loss was made in tiles
    int64_t logits_bytes = 0;  ///< of its logits, as the loss holds them
    int64_t budget_bytes = 0;  ///< that it ran within
    double seconds = 0;        ///< without planning
  };

  /// Shall the next step, whose logits have so many bytes, make its loss in tiles?
  bool wants_tiles(int64_t logits_bytes) const {
    if (logits_bytes != logits_bytes_ || tiles_.steps < kSteps || !has_room_) return true;
    return whole_.steps >= kSteps && tiles_.least_seconds <= whole_.least_seconds;
  }
  /// Both ways have been compared, for logits of this size.
  bool is_over() const { return whole_.steps >= kSteps; }
  double seconds_in_tiles() const {
    return tiles_.least_seconds;
  }                                                              ///< of the shortest step; infinite where there is none
  double seconds_whole() const { return whole_.least_seconds; }  ///< the same of steps with whole logits

  /// Learns of a step. `least_budget`: the smallest that one in tiles does with, in bytes; asked once.
  void note(const Taken& taken, const std::function<int64_t()>& least_budget) {
    if (taken.logits_bytes != logits_bytes_ || taken.budget_bytes != budget_bytes_) {
      *this = HeadTrial();
      logits_bytes_ = taken.logits_bytes;
      budget_bytes_ = taken.budget_bytes;
    }
    Way& way = taken.tiles ? tiles_ : whole_;
    if (way.steps >= kSteps) return;
    if (way.steps++ >= kWarmUp) way.least_seconds = std::min(way.least_seconds, taken.seconds);
    if (taken.tiles && way.steps == kSteps) has_room_ = least_budget() + kTensors * logits_bytes_ <= budget_bytes_;
  }

 private:
  struct Way {
    int steps = 0;
    double least_seconds = std::numeric_limits<double>::infinity();
  };

  int64_t logits_bytes_ = 0, budget_bytes_ = 0;
  bool has_room_ = false;
  Way tiles_, whole_;
};

}  // namespace remat

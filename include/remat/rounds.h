// remat/rounds.h -- how long steps take, told by several rounds of them on a machine that does other things too.
//
// What disturbs a step only adds to its time, so the least of many is what it takes; how far other rounds stay from the
// least tells how much that is worth. No torch, no clock here: whoever asks measures. FitTrial::step_seconds
// (remat/fit.h) are those of a round.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace remat {

/// From this many seconds on a step is long: disturbances even out in it, and it is timed less often.
inline constexpr double kLongStep = 0.25;

/// A round: `step` runs a step and returns its seconds. One step at least; five where these take no more than half a
/// second together, and up to 64 where they take no more than a 20th. The first of several short ones warms up and is
/// left out.
std::vector<double> time_round(const std::function<double()>& step);

/// The times of one kind of step, in seconds. Not thread-safe.
class RoundTimes {
 public:
  /// Of steps in their order. Times of zero and less are left out.
  void add_round(const std::vector<double>& seconds);

  /// How many rounds have been added.
  size_t rounds() const { return rounds_.size(); }
  /// Of all steps the shortest time; 0 where there are none.
  double least() const;
  /// The median of what is least in each round: the later one of two in the middle.
  double usual() const;
  /// How many steps all rounds have.
  size_t steps() const;
  /// The mean in the fastest rows of steps that take `seconds` together (or a round where that has fewer): in as large
  /// a part of them as the least of `tries` stands for. So long a step would have taken, had it been as long as
  /// `seconds` and timed as often: a short one may lie between two disturbances, and one of many is sure to.
  double mean_over(double seconds, size_t tries) const;

 private:
  std::vector<std::vector<double>> rounds_;
};

/// How many times as long one kind of step takes as another.
struct TimesRatio {
  double told = 1;   ///< by the least of each
  double least = 1;  ///< the least that it may be, as far as the rounds vary
  double most = 1;   ///< the most
};

/// Both have been timed, in turn.
TimesRatio ratio_of(const RoundTimes& times, const RoundTimes& others);

}  // namespace remat

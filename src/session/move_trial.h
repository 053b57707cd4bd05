// src/session/move_trial.h -- which of two plans for a step is the faster: the one that moves values, or the one that
// does not.
//
// The seconds that moves are predicted to take rest on copies that were measured when the session began. A step's own
// use of caches and memory, and what others do to the disk later, are not in them. So both plans are followed in turns,
// and then the one whose step was the shortest.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

namespace remat {

/// Not thread-safe.
class MoveTrial {
 public:
  /// Steps that follow each plan. The first of each is not compared: it is slow by what is new about it.
  static constexpr int kSteps = 4;

  /// Learns that a step took `seconds` which followed the plan with (`moves`) or without moves.
  void note(bool moves, double seconds) {
    Side& side = sides_[moves ? 1 : 0];
    if (is_over()) return;
    if (side.steps++ > 0) side.least_seconds = std::min(side.least_seconds, seconds);
  }
  /// Should the next step follow the plan that moves values?
  bool wants_moves() const {
    if (is_over()) return moving().least_seconds <= staying().least_seconds;
    return moving().steps <= staying().steps;
  }
  bool is_over() const { return moving().steps >= kSteps && staying().steps >= kSteps; }
  /// Of the shortest step; infinite before there were two.
  double seconds_with_moves() const { return moving().least_seconds; }
  double seconds_without_moves() const { return staying().least_seconds; }

 private:
  struct Side {
    int steps = 0;
    double least_seconds = std::numeric_limits<double>::infinity();
  };
  const Side& moving() const { return sides_[1]; }
  const Side& staying() const { return sides_[0]; }

  std::array<Side, 2> sides_;
};

}  // namespace remat

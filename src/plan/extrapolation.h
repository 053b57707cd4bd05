// src/plan/extrapolation.h -- predicts the graph of a step of another size from those of a few sizes.
//
// The bytes of a step are linear in its batch, and at most quadratic in a length or a width. Three sizes tell.
// (resize.h predicts a step in progress, whose size is not known, from the values that it has made.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// A line through the last two of some points. Where the last three curve upwards: a parabola, or, where no number is
/// expected to lie on one, what a kernel allocates for itself has a kink between them, and grows no faster than the
/// size from there. One point: what grows with the size.
class Extrapolation {
 public:
  /// What a number may miss a line by and lie on it: allocations are rounded.
  static double rounding(double number) { return 64 + number / 512; }

  /// `sizes`: at least one, ascending; `size`: the one to predict for. `curved`: parabolas may be.
  Extrapolation(const std::vector<int64_t>& sizes, int64_t size, bool curved);

  /// `at(k)`: the number at the k-th size.
  template <class At>
  double operator()(At at) const {
    const size_t last = count_ - 1;
    if (count_ == 1) return static_cast<double>(at(0)) * proportion_;
    const auto y0 = static_cast<double>(at(last)), y1 = static_cast<double>(at(last - 1));
    const double slope = (y0 - y1) / first_;
    const double line = y0 + slope * ahead_;
    if (count_ < 3) return line;
    const double before = (y1 - static_cast<double>(at(last - 2))) / second_;
    if ((slope - before) * first_ <= rounding(y0)) return line;
    const double curve = (slope - before) / (first_ + second_);
    if (!curved_ && ahead_ <= 0) return line;
    const double parabola = line + curve * ahead_ * behind_;
    return curved_ ? parabola : std::min(parabola, std::max(line, y0 * proportion_));
  }

 private:
  size_t count_;
  bool curved_;
  double proportion_ = 1, first_ = 1, second_ = 1, ahead_ = 0, behind_ = 0;
};

/// `known`: at least one graph by its size, all of one structure (resize.h). The seconds of an operator grow with the
/// bytes of its results, from the nearest known size.
Graph extrapolate(const std::map<int64_t, Graph>& known, int64_t size);

}  // namespace remat

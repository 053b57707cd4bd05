// src/plan/random.h -- random numbers for searches, the same on every machine for the same seed.
#pragma once

#include <cstdint>

namespace remat::planners {

/// SplitMix64: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed = 1) : state_(seed) {}

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
  uint64_t state_;
};

}  // namespace remat::planners

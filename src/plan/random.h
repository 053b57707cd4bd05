// src/plan/random.h -- random numbers for searches, the same on every machine for the same seed.
#pragma once

#include <cstdint>

#include "util/mix.h"

namespace remat::planners {

/// SplitMix64: see mix().
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed = 1) : state_(seed) {}

  uint64_t next() {
    const uint64_t result = mix(state_);
    state_ += kSplitMixStep;
    return result;
  }
  /// From 0 to below `bound`, which is not 0.
  uint64_t below(uint64_t bound) { return next() % bound; }
  /// From 0 to below 1.
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace remat::planners

// remat/support/mix.h -- numbers that look random, as a function of others: the same on every machine.
#pragma once

#include <cstdint>

namespace remat::support {

/// What SplitMix64 adds to its state for each number (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
/// generators").
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15U;

/// The number that SplitMix64 makes from state `x`: every bit of the result depends on every bit of x.
inline uint64_t mix(uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// These numbers one after another.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed = 1) : state_(seed) {}

  uint64_t next() {
    const uint64_t result = mix(state_);
    state_ += kSplitMixStep;
    return result;
  }
  /// From 0 to below `bound`, which is not 0. The lower ones are more likely by `bound` / 2^64 at most.
  uint64_t below(uint64_t bound) { return next() % bound; }
  /// From 0 to below 1.
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace remat::support

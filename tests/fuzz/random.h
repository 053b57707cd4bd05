// tests/fuzz/random.h -- a random number generator whose sequence is the same on every platform.
#pragma once

#include <cstdint>

namespace remat::fuzz {

/// SplitMix64. Not at::Generator: what a program *is* must not depend on what it draws.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ULL); }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int64_t percent) { return below(100) < percent; }
  double real() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  static uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a + 0x9E3779B97F4A7C15ULL) ^ b); }

 private:
  uint64_t state_;
};

}  // namespace remat::fuzz

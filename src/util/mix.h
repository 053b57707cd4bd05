// src/util/mix.h -- numbers that look random, as a function of others: the same on every machine.
#pragma once

#include <cstdint>

namespace remat {

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

}  // namespace remat

// data/mix.h -- numbers that look random, as a function of others.
#pragma once

#include <cstdint>

namespace remat::data {

/// SplitMix64 (Steele et al. 2014): every bit of the result depends on every bit of x.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace remat::data

// src/plan/costs.h -- the time of packing and unpacking, in seconds per byte of the unpacked contents.
#pragma once

#include <cstdint>

namespace remat {

/// Measured on contents that are in no cache: 12 GB/s to pack floats, 22 GB/s to unpack them.
inline constexpr double kPackSecondsPerByte = 0.08e-9;
inline constexpr double kUnpackSecondsPerByte = 0.05e-9;

/// Of packing `bytes` and unpacking them again.
constexpr double packing_seconds(int64_t bytes) {
  return (kPackSecondsPerByte + kUnpackSecondsPerByte) * static_cast<double>(bytes);
}

}  // namespace remat

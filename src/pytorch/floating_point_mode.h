// src/pytorch/floating_point_mode.h -- how a thread's processor rounds and what it makes of denormal numbers.
#pragma once

#include <cstdint>

namespace remat {

struct FloatingPointMode {
  int rounding = 0;          ///< as fegetround() says; on x86 that of the x87 unit
  uint32_t vector_unit = 0;  ///< on x86 MXCSR's bits for rounding, flushed results and denormals that count as zero

  bool operator==(const FloatingPointMode&) const = default;

  /// This thread's.
  static FloatingPointMode current();
  /// Makes it this thread's.
  void set() const;
};

}  // namespace remat

#include "pytorch/floating_point_mode.h"

#include <cfenv>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace remat {
#if defined(__SSE__)
namespace {

/// Flush to zero, rounding, denormals are zero. Not the exceptions that were raised, nor those that are masked.
constexpr uint32_t kModes = 0xE040;

}  // namespace
#endif

FloatingPointMode FloatingPointMode::current() {
  FloatingPointMode mode;
  mode.rounding = std::fegetround();
#if defined(__SSE__)
  mode.vector_unit = _mm_getcsr() & kModes;
#endif
  return mode;
}

void FloatingPointMode::set() const {
  if (std::fegetround() != rounding) std::fesetround(rounding);
#if defined(__SSE__)
  _mm_setcsr((_mm_getcsr() & ~kModes) | vector_unit);
#endif
}

}  // namespace remat

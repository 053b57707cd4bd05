// tests/support/known_processor.h -- are tiles with plain's bits to be found here?
#pragma once

#include <cstdlib>

#include <ATen/Context.h>

namespace remat::test {

/// With MKL on processors with AVX-512, AMD's and Intel's, where they were looked for. Elsewhere a computation may be
/// whole, and its bits are tested all the same.
inline bool has_tiles() {
  return at::hasMKL() && __builtin_cpu_supports("avx512f") && std::getenv("MKL_ENABLE_INSTRUCTIONS") == nullptr;
}

}  // namespace remat::test

// src/memory/peak.h -- a largest value that several threads keep.
#pragma once

#include <atomic>
#include <cstdint>

namespace remat::memory {

inline void raise_to(std::atomic<int64_t>& peak, int64_t value) noexcept {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace remat::memory

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

/// Moves `peak` down to what `current` is, and up again to what it may have become meanwhile.
inline void reset_to(std::atomic<int64_t>& peak, const std::atomic<int64_t>& current) noexcept {
  peak.store(current.load());
  raise_to(peak, current.load());
}

}  // namespace remat::memory

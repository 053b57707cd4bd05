// src/memory/serial_number.h -- numbers that tell allocations apart.
#pragma once

#include <atomic>
#include <cstdint>

namespace remat::memory {

/// A number that no allocation had before.
inline uint64_t next_serial() noexcept {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace remat::memory

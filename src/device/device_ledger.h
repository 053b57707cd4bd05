// src/device/device_ledger.h -- a ledger together with what the public memory functions ask of a device.
#pragma once

#include <cstdint>
#include <optional>

#include "memory/ledger.h"

namespace remat::memory {

/// What every device's ledger is. Thread-safe like Ledger; all figures in bytes.
class DeviceLedger : public Ledger {
 public:
  /// What the device or the container can hold at most, set_standing_limit() not included. Asks the system each time.
  virtual int64_t device_limit() const = 0;
  /// See memory::set_limit(); INT64_MAX where none is set.
  virtual int64_t standing_limit() const = 0;
  virtual void set_standing_limit(std::optional<int64_t> bytes) = 0;
  /// Freed memory that the device's allocator kept for reuse.
  virtual int64_t cached() const = 0;
  virtual void release_cached() = 0;
};

}  // namespace remat::memory

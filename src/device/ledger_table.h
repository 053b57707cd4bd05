// src/device/ledger_table.h -- the ledgers of a kind of which there may be several devices.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include <c10/core/Device.h>
#include <remat/error.h>

namespace remat::memory {

/// By index. For a static object: filled once, and never emptied, since tensors may outlive static destruction. Of a
/// process's first 64 devices of the kind.
template <class Ledger>
class LedgerTable {
 public:
  /// `make(index)` gives those of `count` devices, which live as long as the process.
  template <class Make>
  void fill(c10::DeviceIndex count, Make make) {
    count_ = count;
    for (c10::DeviceIndex i = 0; i < count && static_cast<size_t>(i) < kMost; ++i) {
      ledgers_[static_cast<size_t>(i)] = make(i);
    }
  }
  /// Null where there is none.
  Ledger* find(c10::DeviceIndex index) const {
    const auto place = static_cast<size_t>(index);
    return place < kMost ? ledgers_[place] : nullptr;
  }
  /// REQUIRES that there is one.
  Ledger& operator[](c10::DeviceIndex index) const { return *ledgers_[static_cast<size_t>(index)]; }
  /// Throws Error where there is none; `device` is what its user calls it.
  Ledger& get(c10::DeviceIndex index, c10::Device device) const {
    if (Ledger* const ledger = find(index); ledger != nullptr) return *ledger;
    throw Error("[memory] there is no device " + device.str() + "; devices are " + std::to_string(count_));
  }

 private:
  static constexpr size_t kMost = 64;
  std::array<Ledger*, kMost> ledgers_{};
  c10::DeviceIndex count_ = 0;
};

}  // namespace remat::memory

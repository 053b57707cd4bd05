// src/pytorch/autocast_state.h -- autocast, as the kernel of an operator finds it.
//
// PyTorch's own operators are recorded below autocast, with the casts beside them. Other operators may have kernels
// that call PyTorch's, at which autocast casts inside the kernel.
#pragma once

#include <algorithm>
#include <array>

#include <c10/core/ScalarType.h>

#include "device/dispatch_keys.h"

namespace remat {

struct AutocastState {
  std::array<bool, device::kKeys.size()> enabled = {};           ///< by device, as in device::kKeys
  std::array<c10::ScalarType, device::kKeys.size()> types = {};  ///< that they cast to; meaningful where enabled

  bool operator==(const AutocastState&) const = default;
  bool any() const {
    return std::ranges::any_of(enabled, [](bool on) { return on; });
  }
  /// On this thread, for operators that are called now.
  static AutocastState current();
};

/// While it lives, operators that this thread calls find autocast in `state`. Does nothing where that is off.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool changed_ = false, cache_ = false;
  AutocastState before_;
};

}  // namespace remat

// src/record/autocast_state.h -- autocast, as the kernel of an operator finds it.
//
// PyTorch's own operators are recorded below autocast, with the casts beside them. Other operators may have kernels
// that call PyTorch's, at which autocast casts inside the kernel.
#pragma once

#include <array>

#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

namespace remat {

struct AutocastState {
  std::array<bool, 3> enabled = {};           ///< on the CPU, on CUDA devices, on PrivateUse1's
  std::array<c10::ScalarType, 3> types = {};  ///< that they cast to; meaningful where enabled

  bool operator==(const AutocastState&) const = default;
  bool any() const { return enabled[0] || enabled[1] || enabled[2]; }
  /// On this thread, for operators that are called now.
  static AutocastState current();
};

/// The dispatch keys of autocast.
inline constexpr c10::DispatchKeySet kAutocastKeys({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA,
                                                    c10::DispatchKey::AutocastPrivateUse1});

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

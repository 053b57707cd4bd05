// src/device/unobserved.h -- for operators that the record itself calls, to copy what it keeps or to look at it.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace remat {

/// While it lives, an operator that this thread calls is its kernel and no more, with those that the kernel calls:
/// nothing is differentiated or cast, and no recorder, profiler or mode of Python's is told. They may so run while the
/// tape's mutex is held.
class Unobserved {
 public:
  Unobserved() = default;
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  static constexpr c10::DispatchKeySet kModes =
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::PreDispatch, c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const c10::impl::ExcludeDispatchKeyGuard without_modes_{kModes};
  const at::DisableRecordFunctionGuard untold_;
};

}  // namespace remat

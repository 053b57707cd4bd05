// src/operators/operator_kernels.h -- the kernels that the dispatcher calls for an operator.
//
// Kernels are registered and removed at any time, those of PyTorch's own operators too (torch.library, libraries that
// are loaded). PyTorch tells nobody, so each look at an operator compares its entries in the dispatch table with those
// that were there when its facts were found.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>

#include "device/dispatch_keys.h"

namespace remat {

class OperatorKernels {
 public:
  static constexpr size_t kKeys = 3 * device::kKeys.size() + 5;

  /// Those that are registered now. The table outlives this object, unless the operator is deregistered.
  explicit OperatorKernels(const c10::OperatorHandle& handle);

  /// One of them is a function without a C++ signature, as all that come from Python are (torch.library), or the
  /// fallback that somebody has registered for a device: what a user's function gives may depend on more than its
  /// arguments, and it must not be called a second time. (Those of the meta device compute nothing.)
  bool opaque() const { return opaque_; }
  /// A kernel of another device is such a function, which says nothing of the CPU's.
  bool opaque_on_device() const { return opaque_on_device_; }
  /// It is one, and PyTorch's own: that of aten::bmm from 2.14 on.
  bool pytorch_python_on_device() const { return pytorch_python_on_device_; }
  /// The kernel that autocast calls, where it is on, is such a function.
  bool opaque_under_autocast() const { return opaque_under_autocast_; }
  /// One of them, below autograd's keys and not for another device, is not PyTorch's.
  bool own() const { return own_; }
  /// The one that autocast calls is not PyTorch's: a replay calls it there.
  bool own_autocast() const { return own_autocast_; }
  /// One at autograd's keys, that of views and writes in place among them, is not PyTorch's.
  bool own_autograd() const { return own_autograd_; }

  /// Does the dispatcher call the same ones now? Thread-safe. REQUIRES that the operator is registered.
  bool are_in_force() const;
  /// Calls the one for dense tensors on the CPU, also where another is in force by now. False, without a call, where it
  /// is not PyTorch's: then its library may be gone. REQUIRES that the operator is registered.
  bool call_on_host(const c10::OperatorHandle& handle, torch::jit::Stack& stack) const;

 private:
  /// A kernel's functions and the object that it binds: it is another kernel where these bytes are others. A copy of
  /// the kernel would keep the user's function alive.
  static constexpr size_t kKernelBytes = sizeof(c10::BoxedKernel) + 2 * sizeof(void*);
  struct Entry {
    const c10::KernelFunction* place = nullptr;
    std::array<std::byte, kKernelBytes> kernel = {};
  };

  std::array<Entry, kKeys> entries_;  ///< of the dispatch table, which a call may come by
  std::optional<c10::KernelFunction> host_;
  bool opaque_ = false, opaque_on_device_ = false, pytorch_python_on_device_ = false, opaque_under_autocast_ = false;
  bool own_ = false, own_autograd_ = false, own_autocast_ = false;
};

}  // namespace remat

// tests/cuda/kernels/call.h -- an operator's call on the simulated CUDA device, computed by the CPU's kernel.
#pragma once

#include <cstdint>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace remat::simulated_cuda {

struct Call {
  const c10::OperatorHandle& op;
  c10::ArrayRef<c10::IValue> arguments;
  c10::Device device;
};

/// What the CPU's kernels do inside of ours is nobody's business.
class InsideKernel {
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast_{c10::autocast_dispatch_keyset};
  const at::DisableRecordFunctionGuard unobserved_;
};

inline void call_cpu(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

/// As a device does it: the results exist at once, and the current stream computes them later, from addresses alone.
/// False where their shapes cannot be told beforehand, where random numbers are drawn, and where this is not wanted.
bool launch(const Call& call, torch::jit::Stack& results);

/// Waits for the current stream and computes on this thread.
torch::jit::Stack wait_and_compute(const Call& call);

int64_t launched_calls();

/// Whether calls are launched, and how much longer each takes. REMAT_SIMULATED_CUDA_ASYNC=1 and
/// REMAT_SIMULATED_CUDA_KERNEL_US say so from the start.
void set_asynchronous(bool asynchronous, int64_t microseconds);

}  // namespace remat::simulated_cuda

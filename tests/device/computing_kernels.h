// tests/device/computing_kernels.h -- operators of the simulated device that compute, with the CPU's kernels.
//
// A call is made twice. At once, on zeros, which tells what its results will look like: they are allocated, and the
// caller goes on. Then by the stream, on the bytes at the arguments' addresses. What can't be foretold (a shape or a
// number that depends on contents, an operator that refuses zeros) waits for the stream and computes before it returns.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace remat::simulated {

/// The kernel of every operator that has none of its own for the device.
void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Calls that were queued, and those that had to wait, since the program began.
struct ComputedCalls {
  int64_t queued = 0;
  int64_t waited = 0;
};
ComputedCalls computed_calls();

}  // namespace remat::simulated

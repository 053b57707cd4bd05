// tests/support/oracle.h -- the textbook checkpoint, to compare remat's with.
//
// It does what torch.utils.checkpoint does: forward runs the function without gradient and keeps its inputs alone;
// backward restores the generator, runs the function *again* with gradient, and differentiates that second graph.
// Everything that remat promises and this cannot follows from the second call: side effects happen twice.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat::test {

/// From tensors to tensors; whatever else it needs (parameters, modules) it captures.
using Block = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Calls `block(inputs)` now without a graph, and again in backward. At least one input must require grad, or nothing
/// that the block captures gets a gradient (the classical trap of reentrant checkpoints).
std::vector<at::Tensor> naive_checkpoint(const Block& block, const std::vector<at::Tensor>& inputs);

}  // namespace remat::test

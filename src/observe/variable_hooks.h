// src/observe/variable_hooks.h -- hears of `tensor.data = other` (set_data), which is no operator.
#pragma once

namespace remat {

/// Puts remat's hooks before PyTorch's own: they delegate everything. Done once per process. The functions that they
/// hear of are those of torch::autograd behind at::Tensor, such as set_data().
void install_variable_hooks();

}  // namespace remat

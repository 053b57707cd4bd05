// src/replay/batch_norm.h -- repeats batch normalization from its saved statistics.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace remat {

/// `stack` holds the arguments of aten::native_batch_norm in training; `mean` and `inverse_deviation` are its second
/// and third result. Where its first result can be had with the same bits without the two passes over the input that
/// the statistics cost, puts all three on the stack instead of the arguments and returns true. REQUIRES an earlier call
/// of check_batch_norm().
bool repeat_batch_norm(torch::jit::Stack& stack, const at::Tensor& mean, const at::Tensor& inverse_deviation);

/// Finds out once per process whether it works here. Allocates some kilobytes: not to be called under a limit.
void check_batch_norm();

}  // namespace remat

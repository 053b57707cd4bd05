// src/tiles/differentiable.h -- what functions that autograd is to see as one have in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>

#include "tiles/choices.h"

namespace remat::tiles {

/// A tensor that kernels can read: strided, in the host's memory, of no subclass, without a tangent.
bool is_ordinary(const at::Tensor& tensor);

/// `tensor` as an operator that autocast has compute in `type` is given it, where autocast is on for its device.
at::Tensor as_autocast(const at::Tensor& tensor, at::ScalarType type);
bool is_autocast(const at::Tensor& tensor);
/// What autocast computes products in, on the device of `tensor`.
at::ScalarType autocast_type(const at::Tensor& tensor);

/// To be called where backward begins. Throws Error where it is to be differentiated itself, where gradients are those
/// of several backward passes at once, and where autocast would cast what plain's backward computes, of tensors of this
/// type. `gradients`: what backward is given. `forward`: the circumstances that its numbers, which are computed again,
/// were computed in.
void check_backward(const char* function, const at::Tensor& tensor, at::TensorList gradients,
                    const Circumstances& forward);

}  // namespace remat::tiles

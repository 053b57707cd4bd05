// tests/device/kernel_view.h -- a device's tensors as kernels see them: tensors of the CPU over the same bytes.
#pragma once

#include <ATen/core/Tensor.h>

namespace remat::simulated {

/// Holds nothing but the address: when the tensor is gone, its memory may be another's. Of a tensor of the CPU too.
at::Tensor kernel_view(const at::Tensor& tensor);

/// A tensor of the CPU with the same sizes, strides and type, full of zeros.
at::Tensor zeros_in_shape_of(const at::Tensor& tensor);

/// A copy of what a tensor of the CPU holds now.
at::Tensor copy_now(const at::Tensor& tensor);

}  // namespace remat::simulated

// tests/cuda/kernels/cpu_view.h -- tensors of the simulated CUDA device as the CPU's kernels see them.
#pragma once

#include <ATen/core/Tensor.h>

namespace remat::simulated_cuda {

/// A tensor of the CPU over the same bytes. It holds nothing but the address: when the tensor is gone, its memory may
/// be another's, and a kernel that is late reads that.
at::Tensor cpu_view(const at::Tensor& tensor);

/// The same for memory that no tensor stands for.
at::Tensor cpu_view(void* data, at::IntArrayRef sizes, at::IntArrayRef strides, caffe2::TypeMeta type);

/// Numbers in an expression, as in `tensor * 2`, are tensors that do not decide the result's type.
bool is_wrapped_number(const at::Tensor& tensor);
void copy_wrapped_number(const at::Tensor& from, const at::Tensor& to);

}  // namespace remat::simulated_cuda

// src/device/vector_math.h -- MKL's vector functions (exp, sqrt and others), which PyTorch calls for tensors on the
// CPU.
#pragma once

namespace remat::device {

/// Calls each of them once, on the calling thread. Later calls of this function do nothing.
///
/// MKL chooses the kernels of a vector function in its first call. Where several threads make that at once, one may
/// compute its part with another, less accurate kernel, that one time
/// (https://github.com/pytorch/pytorch/issues/188792): of 200 processes on a Xeon with AVX-512, 43 had other bits in
/// half of their first exp(), with two threads and after a product of matrices. A replay would compute with the kernel
/// of all later calls.
void make_first_calls_of_vector_math();

}  // namespace remat::device

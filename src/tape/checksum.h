// src/tape/checksum.h -- a fingerprint of a storage's contents, to find writes that nobody reported.
#pragma once

#include <cstdint>

#include "pytorch/tensor_view.h"

namespace remat {

/// 64 bits of the hash of a part of the storage, never 0. What is on other devices is copied to the host first.
uint64_t checksum(const c10::StorageImpl& storage, ByteRange range);
/// The same of what a tensor reaches.
uint64_t checksum(const c10::TensorImpl& tensor);
/// Of the dense tensors inside of a sparse one on the CPU, which may share them with others; 0 for any other tensor.
/// Its version count does not tell writes to those.
uint64_t checksum_of_parts(const at::Tensor& tensor);

}  // namespace remat

// src/record/checksum.h -- a fingerprint of a storage's contents, for verify mode.
#pragma once

#include <cstdint>

#include <c10/core/StorageImpl.h>

namespace remat {

/// 64 bits of the contents' hash, never 0. Tensors of other devices are copied to the host first.
uint64_t checksum(const c10::StorageImpl& storage);

}  // namespace remat

// src/record/checksum.h -- a fingerprint of a storage's contents, for verify mode.
#pragma once

#include <cstdint>

#include <c10/core/StorageImpl.h>

namespace remat {

/// 64 bits of the hash of the first `bytes` bytes, never 0. Those of other devices are copied to the host first.
uint64_t checksum(const c10::StorageImpl& storage, int64_t bytes);

}  // namespace remat

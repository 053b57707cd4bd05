#include "record/checksum.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace remat {
namespace {

/// Four independent lanes, so that the multiplications overlap; any changed bit changes the result with probability
/// 1 - 2^-64 or so. It is a check against mistakes, not against an adversary.
uint64_t hash_bytes(const unsigned char* data, size_t size) {
  constexpr uint64_t multiplier = 0x9E3779B97F4A7C15ULL;
  uint64_t lanes[4] = {1, 2, 3, 4};
  size_t at = 0;
  for (; at + 32 <= size; at += 32) {
    for (size_t lane = 0; lane < 4; ++lane) {
      uint64_t word = 0;
      std::memcpy(&word, data + at + 8 * lane, 8);
      lanes[lane] = (lanes[lane] ^ word) * multiplier;
      lanes[lane] ^= lanes[lane] >> 29U;
    }
  }
  uint64_t result = size;
  for (; at < size; ++at) result = (result ^ data[at]) * multiplier;
  for (const uint64_t lane : lanes) result = ((result ^ lane) * multiplier) ^ (result >> 31U);
  return result == 0 ? 1 : result;
}

}  // namespace

uint64_t checksum(const c10::StorageImpl& storage) {
  if (storage.device_type() == c10::kCPU) {
    return hash_bytes(static_cast<const unsigned char*>(storage.data()), storage.nbytes());
  }
  const auto size = static_cast<int64_t>(storage.nbytes());
  const at::Tensor host =
      at::from_blob(const_cast<void*>(storage.data()), {size},
                    at::TensorOptions().dtype(at::kByte).device(storage.device()))
          .cpu();
  return hash_bytes(host.const_data_ptr<uint8_t>(), storage.nbytes());
}

}  // namespace remat

#include "record/checksum.h"

#include <ATen/ops/from_blob.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace remat {
namespace {

uint64_t hash(const void* data, size_t size) {
  const uint64_t result = XXH3_64bits(data, size);
  return result == 0 ? 1 : result;
}

}  // namespace

uint64_t checksum(const c10::StorageImpl& storage, ByteRange range) {
  const auto* const data = static_cast<const std::byte*>(storage.data()) + range.begin;
  const int64_t bytes = range.end - range.begin;
  if (storage.device_type() == c10::kCPU) return hash(data, static_cast<size_t>(bytes));
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  const at::Tensor host = at::from_blob(const_cast<std::byte*>(data), {bytes}, options).cpu();
  return hash(host.const_data_ptr(), static_cast<size_t>(bytes));
}

uint64_t checksum(const c10::TensorImpl& tensor) { return checksum(*storage_of(tensor), reach_of(tensor)); }

}  // namespace remat

#include "tape/checksum.h"

#include <array>
#include <memory>

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/from_blob.h>

#include "device/allocation.h"
#include "device/device.h"
#include "device/unobserved.h"

namespace remat {
namespace {

bool is_compressed(c10::Layout layout) {
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
         layout == c10::kSparseBsc;
}

}  // namespace

uint64_t checksum(const c10::StorageImpl& storage, ByteRange range) {
  const auto* const data = static_cast<const std::byte*>(storage.data()) + range.begin;
  const int64_t bytes = range.end - range.begin;
  if (device::is_on_host(storage)) return memory::checksum_of(data, static_cast<size_t>(bytes));
  const Unobserved kernel_alone;
  const auto host = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));  // no tensor: a budget might refuse it
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  at::from_blob(host.get(), {bytes}, at::TensorOptions(at::kByte))
      .copy_(at::from_blob(const_cast<std::byte*>(data), {bytes}, options));
  return memory::checksum_of(host.get(), static_cast<size_t>(bytes));
}

uint64_t checksum(const c10::TensorImpl& tensor) { return checksum(*storage_of(tensor), reach_of(tensor)); }

uint64_t checksum_of_parts(const at::Tensor& tensor) {
  if (!device::is_host(tensor.device())) return 0;
  std::array<at::Tensor, 3> parts;
  if (tensor.is_sparse()) {
    const auto& sparse = static_cast<const at::SparseTensorImpl&>(*tensor.unsafeGetTensorImpl());
    parts = {sparse.indices(), sparse.values(), at::Tensor()};
  } else if (is_compressed(tensor.layout())) {
    const auto& sparse = static_cast<const at::SparseCsrTensorImpl&>(*tensor.unsafeGetTensorImpl());
    parts = {sparse.compressed_indices(), sparse.plain_indices(), sparse.values()};
  } else {
    return 0;
  }
  std::array<uint64_t, 3> sums{};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].defined() && parts[i].has_storage()) sums[i] = checksum(*parts[i].unsafeGetTensorImpl());
  }
  return memory::checksum_of(sums.data(), sizeof(sums));
}

}  // namespace remat

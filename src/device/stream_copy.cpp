#include "device/stream_copy.h"

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>

#include "device/storage_over.h"
#include "device/unobserved.h"

namespace remat::device {
namespace {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

c10::DispatchKeySet keys_of(c10::Device device) {
  return c10::DispatchKeySet(c10::computeDispatchKey(c10::kByte, c10::kStrided, device));
}

/// The first of `storage`.
at::Tensor bytes_of(StoragePtr storage, int64_t bytes) {
  const c10::DispatchKeySet keys = keys_of(storage->device());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys,
                                                         caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({bytes});
  return tensor;
}

}  // namespace

/// By the device's kernel: Allocator::clone() copies on the stream 0 of the device that is current.
StoragePtr copy_in_stream(const c10::StorageImpl& storage) {
  const c10::DeviceGuard guard(storage.device());
  const StoragePtr copy = new_storage(storage.nbytes(), storage.device());
  copy_bytes(copy, StoragePtr::reclaim_copy(const_cast<c10::StorageImpl*>(&storage)),
             static_cast<int64_t>(storage.nbytes()), storage.device());
  return copy;
}

void copy_bytes(const StoragePtr& to, const StoragePtr& from, int64_t bytes, c10::Device device) {
  const Unobserved kernel_alone;
  at::Tensor target = bytes_of(to, bytes);
  at::_ops::copy_::redispatch(keys_of(device), target, bytes_of(from, bytes), /*non_blocking=*/true);
}

}  // namespace remat::device

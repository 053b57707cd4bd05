#include "record/storage_copy.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>

namespace remat {
namespace {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

/// Bytes behind the last address that allocators align to.
size_t alignment_of(const void* address) { return reinterpret_cast<uintptr_t>(address) % 64; }

/// Kernels for vectors choose by the address: mv and dot sum in another order where it has another alignment.
at::DataPtr copy_on_cpu(const c10::StorageImpl& storage, c10::Allocator& allocator) {
  const size_t bytes = storage.nbytes();
  const size_t offset = alignment_of(storage.data());
  if (offset == 0) return allocator.clone(storage.data(), bytes);
  at::DataPtr data = allocator.allocate(offset + bytes);
  auto* const begin = static_cast<std::byte*>(data.get()) + offset - alignment_of(data.get());
  std::memcpy(begin, storage.data(), bytes);
  const auto deleter = data.get_deleter();
  return {begin, data.release_context(), deleter, c10::kCPU};
}

/// All bytes of `storage`.
at::Tensor bytes_of(StoragePtr storage, c10::DispatchKeySet keys) {
  const auto bytes = static_cast<int64_t>(storage->nbytes());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys,
                                                         caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({bytes});
  return tensor;
}

/// By the device's kernel: Allocator::clone() copies on the stream 0 of the device that is current.
StoragePtr copy_on_device(const c10::StorageImpl& storage, c10::Allocator& allocator) {
  const c10::DeviceGuard guard(storage.device());
  auto copy = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                                                    allocator.allocate(storage.nbytes()), &allocator,
                                                    /*resizable=*/true);
  const c10::DispatchKeySet keys(c10::computeDispatchKey(c10::kByte, c10::kStrided, storage.device()));
  const at::Tensor from = bytes_of(StoragePtr::reclaim_copy(const_cast<c10::StorageImpl*>(&storage)), keys);
  at::Tensor to = bytes_of(copy, keys);
  at::_ops::copy_::redispatch(keys, to, from, /*non_blocking=*/true);  // seen by no recorder, and no mode of the user's
  return copy;
}

}  // namespace

StoragePtr copy_of(const c10::StorageImpl& storage) {
  c10::Allocator& allocator = *c10::GetAllocator(storage.device_type());
  const bool has_streams = storage.device_type() != c10::kCPU && storage.device_type() != c10::kMeta;
  if (has_streams) return copy_on_device(storage, allocator);
  at::DataPtr data = storage.device_type() == c10::kCPU ? copy_on_cpu(storage, allocator)
                                                        : allocator.clone(storage.data(), storage.nbytes());
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data),
                                               &allocator, /*resizable=*/true);
}

}  // namespace remat

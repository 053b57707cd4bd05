// src/device/storage_over.h -- storages over memory that is there already, and over new memory.
#pragma once

#include <cstddef>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace remat::device {

/// A storage of `bytes` over `data`, that `allocator` has made and resizes.
inline c10::intrusive_ptr<c10::StorageImpl> storage_over(size_t bytes, c10::DataPtr data, c10::Allocator& allocator) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), &allocator,
                                               /*resizable=*/true);
}

/// The same over new memory of `allocator`. Throws what it throws.
inline c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t bytes, c10::Allocator& allocator) {
  return storage_over(bytes, allocator.allocate(bytes), allocator);
}

/// Of `device`'s own allocator.
inline c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t bytes, c10::Device device) {
  const c10::DeviceGuard guard(device);
  return new_storage(bytes, *c10::GetAllocator(device.type()));
}

}  // namespace remat::device

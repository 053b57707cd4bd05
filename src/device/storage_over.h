// src/device/storage_over.h -- storages over memory that is there already.
#pragma once

#include <cstddef>
#include <utility>

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace remat::device {

/// A storage of `bytes` over `data`, that `allocator` has made and resizes.
inline c10::intrusive_ptr<c10::StorageImpl> storage_over(size_t bytes, c10::DataPtr data, c10::Allocator& allocator) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), &allocator,
                                               /*resizable=*/true);
}

}  // namespace remat::device

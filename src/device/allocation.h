// src/device/allocation.h -- tells one allocation from another, also where the second has the address of the first.
//
// A storage can be emptied and filled again (untyped_storage().resize_(), as FSDP2 does to parameters) without any
// operator. Its StorageImpl stays; the memory behind it is another. An address cannot show that, since allocators reuse
// addresses, so every block of remat's allocator carries a serial number.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/StorageImpl.h>

#include "memory/last_contents.h"

namespace remat::memory {

/// The memory behind a storage. What remat's allocator did not make (serial 0) is told apart by its address alone.
struct Allocation {
  const void* data = nullptr;
  uint64_t serial = 0;

  /// Of a copy-on-write storage, which changes its memory without changing its contents.
  static constexpr uint64_t kCopyOnWrite = UINT64_MAX;
  /// Can both be the same memory?
  bool may_be(const Allocation& other) const {
    if (serial == kCopyOnWrite || other.serial == kCopyOnWrite) return true;
    return data == other.data && serial == other.serial;
  }
};

/// That of `storage` now.
Allocation allocation_of(const c10::StorageImpl& storage) noexcept;

/// Did remat's allocator make the memory behind a CPU storage?
bool is_own_memory(const c10::StorageImpl& storage) noexcept;

/// Watches the block behind `storage` for as long as the result lives. Null where its end is not seen: empty storages,
/// memory that neither remat's allocator nor PyTorch's own made. On other devices the contents at its end are said to
/// have `checksum`, and it is watched for as long as it lives. Thread-safe.
std::shared_ptr<const LastContents> watch_contents(const c10::StorageImpl& storage, uint64_t checksum = 0);

}  // namespace remat::memory

// src/memory/allocation.h -- tells one allocation from another, also where the second has the address of the first.
//
// A storage can be emptied and filled again (untyped_storage().resize_(), as FSDP2 does to parameters) without any
// operator. Its StorageImpl stays; the memory behind it is another. An address cannot show that, since allocators reuse
// addresses, so every block of remat's allocator carries a serial number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <c10/core/StorageImpl.h>

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

/// A number that no allocation had before.
uint64_t next_serial() noexcept;

/// 64 bits of a hash of the bytes, never 0.
uint64_t checksum_of(const void* data, size_t bytes) noexcept;

/// What was in a block when it was freed.
class LastContents {
 public:
  /// checksum_of() them; 0 while the block has not been freed.
  uint64_t checksum() const noexcept { return checksum_.load(std::memory_order_acquire); }

 private:
  friend void tell_end(const void* block, size_t bytes) noexcept;
  std::atomic<uint64_t> checksum_{0};
};

/// Watches the block behind `storage` for as long as the result lives. Null where its end is not seen: empty storages,
/// other devices, memory that neither remat's allocator nor PyTorch's own made. Thread-safe.
std::shared_ptr<const LastContents> watch_contents(const c10::StorageImpl& storage);

/// How many watched blocks have been freed in this process.
uint64_t watched_ends() noexcept;

/// For the allocators: `block`, which is watched, is about to be freed; its `bytes` are still there.
void tell_end(const void* block, size_t bytes) noexcept;

}  // namespace remat::memory

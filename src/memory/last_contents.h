// src/memory/last_contents.h -- what was in a block of CPU memory when it was freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace remat::memory {

/// 64 bits of a hash of the bytes, never 0.
uint64_t checksum_of(const void* data, size_t bytes) noexcept;

class LastContents {
 public:
  /// checksum_of() the bytes; 0 while the block has not been freed.
  uint64_t checksum() const noexcept { return checksum_.load(std::memory_order_acquire); }

 private:
  friend void tell_end(const void* block, size_t bytes) noexcept;
  std::atomic<uint64_t> checksum_{0};
};

/// Watches the block at the address `block` for as long as the result lives. Thread-safe.
std::shared_ptr<const LastContents> watch_block(const void* block);

/// How many watched blocks have been freed in this process.
uint64_t watched_ends() noexcept;

/// For deleters: `block`, which is watched, is about to be freed; its `bytes` are still there.
void tell_end(const void* block, size_t bytes) noexcept;

}  // namespace remat::memory

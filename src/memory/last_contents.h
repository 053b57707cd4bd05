// src/memory/last_contents.h -- what was in a block of memory when it was freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace remat::memory {

/// 63 bits of a hash of the bytes; the highest is set.
uint64_t checksum_of(const void* data, size_t bytes) noexcept;

class LastContents {
 public:
  LastContents() = default;
  /// Of a device's block, which `has_ended` when that is true.
  LastContents(uint64_t checksum, std::shared_ptr<const std::atomic<bool>> has_ended)
      : checksum_(checksum), has_ended_(std::move(has_ended)) {}
  /// checksum_of() the bytes; 0 while the block has not been freed. Of a device's block what watch_device_block() was
  /// given.
  uint64_t checksum() const noexcept { return checksum_.load(std::memory_order_acquire); }
  /// Has the device's block been freed?
  bool has_ended() const noexcept { return has_ended_ && has_ended_->load(std::memory_order_acquire); }

 private:
  friend void tell_end(const void* block, size_t bytes) noexcept;
  std::atomic<uint64_t> checksum_{0};
  const std::shared_ptr<const std::atomic<bool>> has_ended_;
};

/// Watches the block at the address `block` for as long as the result lives. Thread-safe.
std::shared_ptr<const LastContents> watch_block(const void* block);

/// The same of a block that the host cannot read: `checksum` is that of the contents which it has until its end.
std::shared_ptr<const LastContents> watch_device_block(const void* block, uint64_t checksum);

/// How many watched blocks have been freed in this process.
uint64_t watched_ends() noexcept;

/// For deleters: `block`, which is watched, is about to be freed; its `bytes` are still there.
void tell_end(const void* block, size_t bytes) noexcept;
/// For the allocators of devices: `block`, which may be watched, is about to be freed.
void tell_end_on_device(const void* block) noexcept;

}  // namespace remat::memory

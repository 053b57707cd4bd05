// src/device/cpu_blocks.h -- where the memory of CPU tensors comes from: large blocks from an arena, small ones from
// malloc. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/arena.h"

namespace remat::memory {

/// A block of at least `bytes`; null where the system has no more. Its `serial` and `watched` are the caller's to set.
/// `spare`: see Arena::allocate().
Block* allocate_block(size_t bytes, int64_t spare = 0) noexcept;
void free_block(Block* block) noexcept;

/// Bytes of freed blocks kept for reuse.
int64_t cached_bytes() noexcept;
/// Address space of others that have no pages.
int64_t clean_bytes() noexcept;
/// Gives all of them back to the system.
void release_cache() noexcept;
/// Gives back those above `most` bytes; all of them where that is negative.
void trim_cache(int64_t most) noexcept;
/// Whether `address` lies in memory that large blocks are kept in.
bool owns(const void* address) noexcept;

/// Around a fork.
void lock_blocks();
void unlock_blocks();

}  // namespace remat::memory

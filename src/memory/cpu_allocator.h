// src/memory/cpu_allocator.h -- the allocator that remat puts in the place of PyTorch's for CPU tensors.
#pragma once

#include <cstdint>

namespace remat::memory {

/// See memory::start_accounting().
void install_cpu_allocator();
/// Throws Error where another library has put its allocator in the place of remat's: nothing is counted then.
void check_cpu_allocator();

/// Bytes of freed blocks kept for reuse.
int64_t cached_bytes() noexcept;
/// Gives all of them back to the system.
void release_cache() noexcept;
/// Gives back as many as are needed for tensors and cache together to stay below CpuLedger::footprint_limit().
void trim_cache() noexcept;
/// Whether `address` lies in memory that the allocator keeps large blocks in.
bool owns(const void* address) noexcept;

}  // namespace remat::memory

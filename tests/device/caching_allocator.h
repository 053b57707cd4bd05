// tests/device/caching_allocator.h -- memory of simulated devices for tensors, cached as CUDA's allocator does it.
//
// Blocks are rounded to 512 bytes and cut from segments of 2 MiB (requests of up to 1 MiB), 20 MiB (up to 10 MiB) or
// their own size. A freed block is joined with its free neighbours and serves the stream that it was made for, so that
// memory fragments. A device that is full gives cached segments back, and tries again. Each block is filled with ones
// by its stream when it is given out: what reads memory that nobody wrote sees NaN.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace remat::simulated {

/// The one that registration makes PyTorch use; others may stand in front of it. Thread-safe.
c10::DeviceAllocator& caching_allocator();

/// Whether it says how much memory a device has, which not every device's does; true at the start.
void set_tells_memory(bool tells);

}  // namespace remat::simulated

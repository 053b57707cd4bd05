// tests/device/pinned_memory.h -- host memory that simulated devices read and write while the host goes on.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace remat::simulated {

/// PyTorch's caching host allocator over malloc: a block that a stream used serves again when the stream is past that.
at::HostAllocator& pinned_allocator();
bool is_pinned(const void* address);

}  // namespace remat::simulated

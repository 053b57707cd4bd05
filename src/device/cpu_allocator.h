// src/device/cpu_allocator.h -- the allocator that remat puts in the place of PyTorch's for CPU tensors.
#pragma once

namespace remat::memory {

/// See memory::start_accounting().
void install_cpu_allocator();
/// Has it been installed?
bool has_cpu_allocator();
/// Throws Error where another library has put its allocator in the place of remat's: nothing is counted then.
void check_cpu_allocator();

}  // namespace remat::memory

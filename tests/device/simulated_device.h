// tests/device/simulated_device.h -- an accelerator of our own, "simulated", as PyTorch's PrivateUse1 device.
//
// What makes accelerators different from the CPU, without one: memory that the host cannot touch and that runs out
// (device_memory.h), an allocator that caches and fragments (caching_allocator.h), kernels that run later, on streams
// (stream.h), random numbers from a seed and an offset (generator.h), pinned memory, and backward passes on a thread of
// autograd's. Kernels are those of the CPU, so that results have its bits; they know addresses alone, so that memory
// that is given away too early shows as wrong values (computing_kernels.h).
#pragma once

#include <c10/core/Device.h>

namespace remat::simulated {

/// Makes the devices known to PyTorch, "simulated:0" and "simulated:1". Again it does nothing. Thread-safe.
void register_devices();

/// The device, which register_devices() has made known.
c10::Device device(int index = 0);

/// Whether tensors take their memory from the device's own allocator, whatever PyTorch knows as that; false at the start.
void set_own_allocator(bool own);

}  // namespace remat::simulated

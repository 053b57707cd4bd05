// tests/device/registration.h -- what each file of the simulated device tells PyTorch. Called once, in this order.
#pragma once

#include <c10/core/DispatchKey.h>

namespace remat::simulated {

void register_device_guard();
void register_hooks();
void register_memory_kernels();
void register_random_kernels();
/// For the devices of this key: tests/cuda has them too.
void register_recurrent_kernels(c10::DispatchKey key);
/// Last: an operator that has a kernel for the device already keeps it.
void register_computing_kernels();
void register_autocast();

}  // namespace remat::simulated

// tests/device/registration.h -- what each file of the simulated device tells PyTorch. Called once, in this order.
#pragma once

namespace remat::simulated {

void register_device_guard();
void register_hooks();
void register_memory_kernels();
void register_random_kernels();
void register_recurrent_kernels();
/// Last: an operator that has a kernel for the device already keeps it.
void register_computing_kernels();
void register_autocast();

}  // namespace remat::simulated

// src/memory/accelerator.h -- the ledgers of devices that come to PyTorch from outside (PrivateUse1): whatever
// allocator they have, one that asks stands before it.
#pragma once

#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include "memory/device_ledger.h"

namespace remat::memory {

/// The ledger of a device, which lives as long as the process. Counts what is allocated from start_accounting() on.
/// Throws Error where the device has no allocator that gives way to another (c10::DeviceAllocator).
DeviceLedger& accelerator_ledger(c10::Device device);

/// Puts the allocator that asks in the place of the device's own, for the rest of the process. A second call does
/// nothing. Throws Error as accelerator_ledger() does.
void install_accelerator_allocator();
/// Has it been installed?
bool has_accelerator_allocator();

/// The serial number of memory that it has allocated; 0 for any other.
uint64_t accelerator_serial(const c10::DataPtr& data) noexcept;

}  // namespace remat::memory

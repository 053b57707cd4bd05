// src/memory/cuda.h -- the ledgers of CUDA devices. cuda.cpp implements it; no_cuda.cpp stands in where torch has none.
#pragma once

#include <c10/core/Device.h>

#include "memory/device_ledger.h"

namespace remat::memory {

/// The ledger of a CUDA device, which lives as long as the process. Throws Error if there is no such device, or if
/// torch was built without CUDA.
DeviceLedger& cuda_ledger(c10::Device device);

}  // namespace remat::memory

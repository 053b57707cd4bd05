// src/memory/meta.h -- the account of tensors on the meta device, which have sizes and no memory: what a step would
// take.
#pragma once

#include "memory/device_ledger.h"

namespace remat::memory {

/// One per process. Counts, and enforces nothing: there is no limit on what is not there.
DeviceLedger& meta_ledger();

/// Puts an allocator that counts in the place of PyTorch's for the meta device, for the rest of the process. Meta
/// tensors that exist already are not counted. A second call does nothing.
void install_meta_allocator();
/// Has it been installed?
bool has_meta_allocator();

}  // namespace remat::memory

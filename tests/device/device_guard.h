// tests/device/device_guard.h -- a switch of what PyTorch asks of the simulated devices.
#pragma once

namespace remat::simulated {

/// Whether the allocator can be told which streams use a block, which not every device can; true at the start.
void set_records_streams(bool records);

}  // namespace remat::simulated

// src/session/move_tier.h -- what a session moves values to, and what that costs.
#pragma once

#include <memory>

#include <cstdint>

#include <c10/core/Device.h>
#include <remat/disk.h>
#include <remat/graph.h>

#include "tiers/move_target.h"

namespace remat {

struct MoveTier {
  std::shared_ptr<tiers::MoveTarget> target;
  Tier tier;
};

/// Makes a file, and moves some megabytes there and back to measure it. Throws Error where that fails.
MoveTier disk_tier(const Disk& disk);
/// `bytes` of pinned host memory for a device with streams, measured in the same way.
MoveTier host_tier(c10::Device device, int64_t bytes);

}  // namespace remat

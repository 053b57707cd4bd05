// src/session/disk_tier.h -- the file that a session moves values to, and what that costs.
#pragma once

#include <memory>

#include <remat/disk.h>
#include <remat/graph.h>

#include "tiers/spill_file.h"

namespace remat {

struct DiskTier {
  /// Makes the file, and moves some megabytes there and back to measure it. Throws Error where that fails.
  explicit DiskTier(const Disk& disk);

  std::shared_ptr<tiers::SpillFile> file;
  Tier tier;
};

}  // namespace remat

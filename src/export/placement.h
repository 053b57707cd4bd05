// src/export/placement.h -- addresses in one arena.
#pragma once

#include <cstdint>
#include <vector>

#include "export/schedule.h"

namespace remat::exporting {

struct Placement {
  std::vector<int64_t> offset;  ///< by instance, in bytes; of what has no bytes 0
  int64_t bytes = 0;            ///< of the arena
  int64_t live_bytes = 0;       ///< the most that is alive at once: no arena is smaller
};

/// Places the instances of a schedule so that those alive at the same time do not meet. Tries several orders, then
/// changes the best one at random (the same numbers each time), until the arena is no larger than what is alive.
Placement place(const Schedule& schedule);

}  // namespace remat::exporting

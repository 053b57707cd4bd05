// cli/launch_ranks.h -- starts the ranks of `remat train --ranks N` on this machine, as torchrun does elsewhere.
#pragma once

#include <optional>

#include "cli/rank_place.h"

namespace remat::cli {

/// One of the two.
struct Launched {
  std::optional<RankPlace> place;  ///< in a rank: goes on with the training
  int code = 0;                    ///< in the process that started them: all have ended, and this is the exit code
};

/// Starts `count` copies of this process, which share the machine's cores and memory, passes a signal on to them and
/// waits for their end. Of what they fail with one message is printed. Throws Error where the system refuses, or where
/// remat was built without c10d and Gloo.
Launched launch_ranks(int count);

}  // namespace remat::cli

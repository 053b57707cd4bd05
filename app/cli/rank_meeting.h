// cli/rank_meeting.h -- how processes that were started one by one (by torchrun, srun, mpirun) learn that one of them
// cannot begin, so that none waits for it.
#pragma once

#include <string>

#include <c10/util/intrusive_ptr.h>

#include "cli/rank_place.h"

namespace c10d {
class Store;
}

namespace remat::cli {

/// Connects to the store of those processes, which rank 0 serves unless torchrun does. Comes before anything that can
/// fail. Throws Error where there is no store.
void begin_meeting(const RankPlace& place);

/// Blocks until all processes have called it; returns that store. Throws Error with the reason of one that called
/// tell_ranks() instead.
c10::intrusive_ptr<c10d::Store> wait_for_ranks(const RankPlace& place);

/// For a process of torchrun that ends because of `reason`. No effect where there are no others, or where they have
/// met: those see that it has ended. Not thread-safe, as all of these.
void tell_ranks(const std::string& reason) noexcept;

}  // namespace remat::cli

// src/run/eviction.h -- the online policy: which saved values to give up when memory runs short.
//
// The next one is always the value with the least recompute seconds per byte, where the seconds are those of the
// operators that its loss *adds* to the replays to come: operators that have to run anyway, because of what has been
// given up before, cost nothing more. (DTR, Kirisame et al. 2021, arXiv 2006.09616, evicts by cost / (size * staleness)
// with an evicted neighbourhood; here every value is needed exactly once more, in reverse order, so that staleness says
// nothing in the forward pass, and the order of need is known in backward.)
#pragma once

#include <cstdint>

#include "record/tape.h"

namespace remat {

/// Gives up values of `tape` worth at least `bytes`, or all it can. Returns the bytes freed.
int64_t evict(Tape& tape, int64_t bytes);

}  // namespace remat

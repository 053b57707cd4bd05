// src/run/eviction.h -- the online policy: which saved values to evict when memory runs short.
//
// By the prices of plan/eviction_choice.h: always the value that adds the fewest recompute seconds per byte.
#pragma once

#include <cstdint>

#include "record/tape.h"

namespace remat {

/// Gives up values of `tape` worth at least `bytes`, or all it can. Returns the bytes freed.
int64_t evict(Tape& tape, int64_t bytes);

}  // namespace remat

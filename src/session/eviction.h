// src/session/eviction.h -- the online policy: which saved values to evict when memory runs short.
//
// By the prices of plan/eviction_choice.h: always the value that adds the fewest recompute seconds per byte.
#pragma once

#include <cstdint>

#include "session/operator_times.h"
#include "tape/tape.h"

namespace remat {

struct Evicted {
  int64_t bytes = 0;  ///< that were freed
  int64_t left = 0;   ///< that could be freed still; INT64_MAX: nothing was evicted, what is moved has made room
};

/// Gives up values of `tape` worth at least `bytes`, or all it can. `times`: of a step that begins like this one, to
/// choose by; null: by its own.
Evicted evict(Tape& tape, int64_t bytes, const OperatorTimes* times);

}  // namespace remat

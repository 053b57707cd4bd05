// src/plan/revolve.h -- binomial checkpointing of a chain of equal steps.
#pragma once

#include <cstdint>

#include "plan/chain.h"

namespace remat::planners {

/// How many of `length` steps to run before the next checkpoint, with `slots` checkpoints for these steps, the state at
/// their beginning included. `length` is at least 2, `slots` at least 1.
int64_t revolve_advance(int64_t length, int64_t slots);

/// Revolve's schedule of a chain of `blocks` blocks with `slots` checkpoints, the beginning included.
ChainSchedule revolve_schedule(int32_t blocks, int64_t slots);

}  // namespace remat::planners

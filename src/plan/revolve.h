// src/plan/revolve.h -- binomial checkpointing of a chain of equal steps.
#pragma once

#include <cstdint>

#include "plan/chain.h"

namespace remat::planners {

/// How many of `length` steps to run before the next checkpoint is taken, where `slots` checkpoints are there for these
/// steps, the state that they begin with included. `length` is at least 2, `slots` at least 1.
int64_t revolve_advance(int64_t length, int64_t slots);

/// What Revolve does with a chain of `blocks` blocks and as many checkpoints, the beginning included.
ChainSchedule revolve_schedule(int32_t blocks, int64_t slots);

}  // namespace remat::planners

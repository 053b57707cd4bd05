// src/replay/replay.h -- recomputes evicted values by running their operators again.
#pragma once

#include "tape/tape.h"

namespace remat {

/// The storage with the contents of `value`: the one that is alive, or one filled by replaying the operators that led
/// to it, from the nearest values that are alive. What comes by on the way and is still to be asked for is kept.
///
/// Throws Error where an input was changed meanwhile, BudgetError where there is no room. Thread-safe; REQUIRES that
/// the caller does not hold the tape's mutex.
StoragePtr materialize(Tape& tape, ValueId value);

}  // namespace remat

// src/replay/move_in.h -- moved values come back from their file, on demand and ahead of it.
#pragma once

#include "tape/tape.h"

namespace remat {

/// The contents of `id`, in memory of its own: those that were on their way, or read now. Null where they are not in a
/// file any more, or could not be read: a replay makes them. Without the tape's mutex.
StoragePtr move_in(Tape& tape, ValueId id);

/// A moved value was asked for: lets those come that the order says, as far as there is memory for them that nothing
/// has to be evicted for. Without the tape's mutex.
void begin_to_come(Tape& tape);

}  // namespace remat

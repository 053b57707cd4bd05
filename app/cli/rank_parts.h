// cli/rank_parts.h -- the state of several processes as one sequence of bytes: a part of each, and the sizes of all
// parts, 8 bytes each, at the end.
#pragma once

#include <vector>

#include "cli/data_parallel.h"
#include "cli/training_state.h"

namespace remat::cli {

/// Each process calls it, with a `save` that writes its own part; the first process writes the whole. Throws what its
/// `write` throws, when the others have been heard; Error there where another could not save.
void write_parts(DataParallel& processes, const std::function<void(const WriteBytes&)>& save, const WriteBytes& write);

/// The parts of `count` processes. Throws Error where `whole` is not made of so many.
std::vector<StatePart> find_parts(const StatePart& whole, int count);

}  // namespace remat::cli

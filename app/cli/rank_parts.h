// cli/rank_parts.h -- the state of several ranks as one sequence of bytes: a part of each, and the sizes of all parts,
// 8 bytes each, at the end.
#pragma once

#include <functional>
#include <vector>

#include "cli/rank_group.h"
#include "cli/training_state.h"

namespace remat::cli {

/// Each rank calls it, with a `save` that writes its own part; rank 0 writes the whole. Throws what `save` and, on rank
/// 0, `write` throw, when all ranks have been heard: the others may not have failed.
void write_parts(RankGroup& ranks, const std::function<void(const WriteBytes&)>& save, const WriteBytes& write);

/// The parts of `count` ranks. Throws Error where `whole` is not made of so many.
std::vector<StatePart> find_parts(const StatePart& whole, int count);

}  // namespace remat::cli

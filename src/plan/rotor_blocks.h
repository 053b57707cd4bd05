// src/plan/rotor_blocks.h -- the seconds and bytes of a chain's blocks, the bytes in slots: the input of the planner
// `rotor`.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chain.h"

namespace remat::planners {

/// Slots divide the bytes of plain's peak above the baseline into equal parts.
struct RotorBlocks {
  RotorBlocks(const Graph& graph, const Cuts& cuts, const Chain& chain, int32_t slots);

  int32_t count() const { return static_cast<int32_t>(seconds.size()); }
  /// The slots of a checkpoint before block `next`, without those of the state that block `first` begins with.
  int32_t state(size_t first, size_t next) const { return states_[first * seconds.size() + next]; }

  std::vector<double> seconds;       ///< of a replay
  std::vector<double> tail_seconds;  ///< of a replay where the state at the end is held
  std::vector<double> lost_seconds;  ///< to recompute values that a replay of it reads and no checkpoint may hold
  std::vector<int32_t> inside;       ///< of the droppable values that it makes
  std::vector<int32_t> tail_inside;  ///< of those that do not cross its end
  std::vector<int32_t>
      forward_other;           ///< the most that plain holds besides droppable values while the block runs forward
  std::vector<int32_t> other;  ///< the same forward and backward, without the values of the block

 private:
  std::vector<int32_t> states_;  ///< by first block and the one after the checkpoint
};

}  // namespace remat::planners

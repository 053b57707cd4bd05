// src/plan/rotor_blocks.h -- what a chain's blocks take, in slots of memory: the input of the planner `rotor`.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chain.h"

namespace remat::planners {

/// A slot is that share of the bytes that plain's peak has above the baseline.
struct RotorBlocks {
  RotorBlocks(const Graph& graph, const Cuts& cuts, const Chain& chain, int32_t slots);

  int32_t count() const { return static_cast<int32_t>(seconds.size()); }
  /// What is held at a checkpoint before block `next`, beyond what block `first` begins with.
  int32_t state(size_t first, size_t next) const { return states_[first * seconds.size() + next]; }

  std::vector<double> seconds;         ///< of a replay
  std::vector<double> tail_seconds;    ///< of a replay where the state at the end is held
  std::vector<double> lost_seconds;    ///< to make again what a replay from its beginning needs and no checkpoint has
  std::vector<int32_t> inside;         ///< droppable values that it makes
  std::vector<int32_t> tail_inside;    ///< those that do not cross its end
  std::vector<int32_t> forward_other;  ///< the most that plain has besides saved values while the block runs forward
  std::vector<int32_t> other;          ///< forward and backward, besides what the block makes

 private:
  std::vector<int32_t> states_;  ///< by first block and the one after the checkpoint
};

}  // namespace remat::planners

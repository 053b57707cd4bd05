// src/tape/step_counts.h -- what a step's report counts.
#pragma once

#include <cstdint>
#include <string>

#include <c10/util/flat_hash_map.h>

#include "operators/operator_info.h"

namespace remat {

/// What the replays of one operator cost.
struct ReplayCost {
  int64_t count = 0;
  double seconds = 0;
  int64_t bytes = 0;  ///< of results
};

struct StepCounts {
  int64_t saved_values = 0, saved_bytes = 0;  ///< values that saved tensors ever referred to
  int64_t evicted_values = 0, evicted_bytes = 0;
  int64_t packed_values = 0, packed_bytes = 0;  ///< the bytes that packing spared
  int64_t moved_values = 0, moved_bytes = 0;    ///< to a file
  double move_wait_seconds = 0;                 ///< for copies there and back
  int64_t failed_moves = 0;                     ///< values that had to be recomputed instead
  std::string move_error;                       ///< of the last of those
  int64_t shortages = 0;                        ///< times that memory ran short and something was evicted
  int64_t replays = 0;                          ///< operators that were run again
  double replay_seconds = 0;                    ///< of those, and of unpacking
  ska::flat_hash_map<const OperatorInfo*, ReplayCost> replayed;
  bool differentiates = false;  ///< an operator of forward had an input on the session's device that needs a gradient
  int64_t under_mode = 0;       ///< operators of forward under a dispatch mode of the user's, which are not recorded
  int64_t generator_bytes = 0;  ///< of generator states, which plain does not keep
  int64_t checksum_bytes = 0;   ///< that a device's checksums took, which plain does not
  int64_t adopted_bytes = 0;    ///< of tensors older than the account that the step was the first to meet
  int64_t parameter_bytes = 0, gradient_bytes = 0;  ///< of the parameters read so far, and of what they had in grad()
};

}  // namespace remat

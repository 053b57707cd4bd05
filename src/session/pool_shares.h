// src/session/pool_shares.h -- how a pool divides its bytes among steps that run at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace remat {

/// What a step that asks a pool for bytes says of itself.
struct PoolDemand {
  struct Point {
    int64_t bytes = 0;   ///< above the baseline
    double seconds = 0;  ///< of recomputation, that the step takes with so many
  };
  const void* session = nullptr;  ///< whose step it is
  std::vector<Point> curve = {};  ///< bytes rise, seconds fall, to 0 at last; empty where it cannot be told
  double step_seconds = 0;        ///< of the step without recomputation

  bool is_known() const { return !curve.empty(); }
  /// The least that it can do with.
  int64_t least() const { return curve.front().bytes; }
};

using PoolDemands = std::vector<std::shared_ptr<const PoolDemand>>;

/// Returns the bytes of `room` for the step of `own`, which can do with so many, if the steps of `others` run beside
/// it. Each has the least that it can do with, in their order and as far as there is room for them; others get nothing.
/// What is left goes to whom it saves the most seconds of recomputation by the byte and by the second that the byte is
/// held, which is for the length of the step; what nobody needs, to all in equal parts.
int64_t share_of(const PoolDemand& own, const PoolDemands& others, int64_t room);

}  // namespace remat

// src/session/pressure_budget.h -- the limit of a session that follows the memory that is left (Budget::pressure()).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "memory/memory_left.h"

namespace remat {

/// Follows what is left down at once and up with hesitation, so that a neighbour whose memory comes and goes does not
/// have each step planned anew.
class PressureBudget {
 public:
  using Clock = std::chrono::steady_clock;

  /// Looks at what is left as a step begins. `own`: bytes that the process's tensors have, with freed blocks that are
  /// kept for them. Returns why the limit has changed; empty where it has not.
  std::string follow(int64_t own, const memory::MemoryLeft& left, Clock::time_point now);

  /// In bytes, of all tensors; INT64_MAX before follow().
  int64_t limit() const { return limit_; }

 private:
  std::string set(int64_t limit, const std::string& why);

  int64_t limit_ = INT64_MAX;
  Clock::time_point lowered_for_stalls_ = Clock::time_point::min();
  /// There has been more since, in so many looks, the least of them in bytes.
  struct More {
    Clock::time_point since;
    int looks = 0;
    int64_t least = INT64_MAX;
  };
  std::optional<More> more_;
};

}  // namespace remat

// src/replay/operator_times.h -- what the operators of a step took, for later steps to choose their evictions by.
//
// Which values the online policy evicts depends on measured times, and these on what else the machine does. Near the
// smallest budget that works one choice completes and another does not. A step that chooses by the times of one that
// completed makes the same choices, so it completes as well.
#pragma once

#include <cstdint>
#include <vector>

#include "tape/program.h"

namespace remat {

class OperatorTimes {
 public:
  explicit OperatorTimes(const Program& program) {
    operators_.reserve(program.size());
    for (const Operation& operation : program) operators_.push_back({operation.value_count, operation.seconds});
  }
  /// Has a step run what this one began with, as far as can be told by the number of results? Of other sizes, maybe.
  bool begins_like(const Program& program) const {
    if (program.size() > operators_.size()) return false;
    for (OperationId id = 0; id < program.size(); ++id) {
      if (program[id].value_count != operators_[id].value_count) return false;
    }
    return true;
  }
  size_t size() const { return operators_.size(); }
  /// Seconds that a replay of `operation`, which is number `id`, takes.
  double replay_seconds(Operation operation, OperationId id) const {
    operation.seconds = operators_[id].seconds;
    return operation.replay_seconds();
  }

 private:
  struct Each {
    uint32_t value_count;
    float seconds;
  };
  std::vector<Each> operators_;
};

}  // namespace remat

// src/tape/action_source.h -- whom the record asks what shall become of saved values: the plan that a step follows.
#pragma once

#include <optional>

#include <remat/plan.h>

#include "tape/program.h"

namespace remat {

class Tape;

/// Called with the tape's mutex held.
class ActionSource {
 public:
  virtual ~ActionSource() = default;
  /// The last operation of `tape` has just been recorded. Returns from which operation on another action may be due for
  /// results than was said before: kNoId where for none.
  virtual OperationId advance(const Tape& tape) = 0;
  /// What shall become of a value, or nothing where no plan is followed any more.
  virtual std::optional<Action> action_of(const Tape& tape, ValueId value) const = 0;
};

}  // namespace remat

// src/session/policy_tape.h -- what a policy's scope is recorded on.
#pragma once

#include <memory>

#include "observe/recorder.h"
#include "tape/tape.h"

namespace remat {

/// While it lives, this thread records: on the tape of the step, or on one that all policy scopes share which are open
/// on the thread at the same time, in whatever order they end.
class PolicyTape {
 public:
  PolicyTape();
  ~PolicyTape();
  PolicyTape(const PolicyTape&) = delete;
  PolicyTape& operator=(const PolicyTape&) = delete;

  /// Null where that tape is no longer recorded on: the step ended inside of the scope, or another thread ends it.
  Recorder* recorder() const;

 private:
  std::shared_ptr<Tape> tape_;
};

}  // namespace remat

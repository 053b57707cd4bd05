// src/observe/call_generators.h -- the random number generators that a call may draw from, before it runs and after.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Generator.h>

#include "tape/program.h"

namespace remat {

class CallGenerators {
 public:
  CallGenerators() = default;
  /// Before the call runs. Not with a tape locked: who draws holds a generator's mutex, and may wait for the tape's.
  CallGenerators(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);

  /// There was no memory for a generator's state.
  bool has_no_room() const { return no_room_; }
  /// The state of its generator, for CallSite. Once.
  std::optional<GeneratorRecord> take_state();
  /// The state was not kept: what becomes of the generator is nobody's business.
  void forget_state() { first_ = at::Generator(); }
  /// After it has run, not with a tape locked: has it drawn from the one generator alone, as far as states tell?
  /// `drawn` is the checksum of that one's state now.
  bool has_drawn_alone(uint64_t& drawn) const;

 private:
  bool no_room_ = false;
  std::optional<GeneratorRecord> before_;
  at::Generator first_;   ///< whose state is kept
  at::Generator second_;  ///< beside it, whose state is not
  uint64_t second_drawn_ = 0;
};

}  // namespace remat

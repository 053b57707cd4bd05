// src/replay/repeatability.h -- what must hold for a recorded operator to be run again with the same bits. Each
// function throws Error where it does not, and says what to do. They REQUIRE the tape's mutex.
#pragma once

#include "tape/tape.h"

namespace remat {

/// Checks that `contents`, which `reader` is about to read as `argument`, are what they were when it was recorded.
/// Contents on an accelerator are compared at the step's end.
void check_input(Tape& tape, const TensorArgument& argument, const StoragePtr& contents, const Operation& reader);

/// Checks that a tensor without strided memory (a sparse one, say) is what it was.
void check_opaque(const at::Tensor& tensor, const TensorArgument& argument, const OperatorInfo& reader);

/// Refuses an operator that ran with more threads than a child after a fork was given: OpenMP's threads do not survive
/// a fork, and waiting for them has no end.
void check_threads(const Tape& tape, const Operation& operation, const KernelSettings& settings);

/// Throws: the contents of a leaf are gone.
[[noreturn]] void refuse_lost(const Tape& tape, ValueId id);

/// Throws: the operator was found, or declared, not repeatable after it was recorded.
[[noreturn]] void refuse_distrusted(const OperatorInfo& info);

/// Throws: the operator's recorded kernels cannot be called any more. Needs no lock.
[[noreturn]] void refuse_replaced(const OperatorInfo& info);

}  // namespace remat

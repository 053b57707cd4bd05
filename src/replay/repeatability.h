// src/replay/repeatability.h -- what must hold for a recorded operator to be run again with the same bits. Each
// function throws Error where it does not, and says what to do. They REQUIRE the tape's mutex.
#pragma once

#include "tape/tape.h"

namespace remat {

/// `contents`, which `reader` is about to read as `argument`, are what they were when it was recorded. Of a device's
/// contents that is told at the step's end.
void check_input(Tape& tape, const TensorArgument& argument, const StoragePtr& contents, const Operation& reader);

/// A tensor that is not plain (sparse, say) is what it was.
void check_opaque(const at::Tensor& tensor, const TensorArgument& argument, const OperatorInfo& reader);

/// More threads than a child was given may be more than it can have: OpenMP's do not survive a fork, and waiting for
/// them has no end.
void check_threads(const Tape& tape, const Operation& operation, const KernelSettings& settings);

/// The contents of a leaf are gone.
[[noreturn]] void refuse_lost(const Tape& tape, ValueId id);

/// The operator was found, or declared, not repeatable after it was recorded.
[[noreturn]] void refuse_distrusted(const OperatorInfo& info);

/// Its kernels are others than those that were recorded, which cannot be called any more. Without a lock.
[[noreturn]] void refuse_replaced(const OperatorInfo& info);

}  // namespace remat

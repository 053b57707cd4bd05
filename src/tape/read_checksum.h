// src/tape/read_checksum.h -- the checksum of what an operator reads, without hashing frozen weights in every step.
//
// Inputs, masks and tables are hashed whenever an operator reads them, since people write to them through pointers. A
// frozen weight looks like one of them, and to hash it takes as long as to multiply it by one vector. What tells it
// from them is that it never changes: a large tensor that the reads of three sessions' steps found unchanged is
// *constant* from then on. Of a constant, a sample is hashed, and where that, its allocation and its version count are
// as before, so is its checksum. A replay compares with the checksum of all of it: a write through a pointer that the
// sample missed gives an error, and the tensor is hashed in full ever after.
#pragma once

#include <cstdint>

#include <c10/core/TensorImpl.h>

namespace remat {

/// checksum() of what `tensor` (plain, on the CPU) reaches, read in the step of that number (Tape::step). Thread-safe.
uint64_t read_checksum(const c10::TensorImpl& tensor, uint64_t step);

/// May `tensor` be a constant one day? Masks and indices may change in few places, which a sample does not show.
bool may_be_constant(const c10::TensorImpl& tensor);

/// What read_checksum() said of `tensor` was found to be wrong, or its contents have changed since: it is no constant.
void forget_constant(const c10::TensorImpl& tensor);

}  // namespace remat

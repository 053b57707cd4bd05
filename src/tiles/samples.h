// src/tiles/samples.h -- what trials compute with, and how they compare.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace remat::tiles {

/// Writes normally distributed numbers, the same for one seed; no generator of anybody else is asked.
void fill(at::Tensor& tensor, uint64_t seed, double deviation = 1);
/// A new tensor with the layout of `like` and the alignment of its memory, filled.
at::Tensor sample_like(const at::Tensor& like, uint64_t seed, double deviation = 1);

/// A matrix of which each row begins three numbers after the one before, in the same memory: it is as large as asked
/// for and takes little. Its columns add up to little, so that each rounding shows.
at::Tensor overlapping(int64_t rows, int64_t columns, uint64_t seed, const at::TensorOptions& options);

/// Bytes by which its memory begins after a line of the cache.
int64_t misalignment(const at::Tensor& tensor);

/// Of sizes and type that are the same.
bool have_same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace remat::tiles

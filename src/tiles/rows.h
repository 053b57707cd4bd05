// src/tiles/rows.h -- how tokens are divided into tiles, and sums over them into parts.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace remat::tiles {

/// A rest of fewer tokens than this goes to the tile before it: kernels add in another order for one to three rows.
inline constexpr int64_t kShortRest = 16;

/// How many tokens the tile has that begins with `begin`, where most have `rows`.
inline int64_t rows_of_tile(int64_t begin, int64_t rows, int64_t tokens) {
  const int64_t left = tokens - begin;
  return left < rows + kShortRest ? left : rows;
}

/// Adds the product of a.t() and b to `sum`, `part` rows of both at a time. An undefined sum is made by the first.
void add_products(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, int64_t part);

}  // namespace remat::tiles

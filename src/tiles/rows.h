// src/tiles/rows.h -- how tokens are divided into tiles, and sums over them into parts.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat::tiles {

/// A rest of fewer tokens than this goes to the tile before it: kernels add in another order for one to three rows.
inline constexpr int64_t kShortRest = 16;

struct RowTiles {
  int64_t rows = 0;            ///< tokens in a tile
  int64_t part = 0;            ///< tokens that are added at a time to gradients of weights
  int64_t least = kShortRest;  ///< a rest of fewer tokens goes to the tile before it

  /// How many tokens the tile has that begins with `begin`.
  int64_t count(int64_t begin, int64_t tokens) const {
    const int64_t left = tokens - begin;
    return left < rows + least ? left : rows;
  }
};

/// All tokens in one tile.
inline RowTiles one_tile(int64_t tokens) { return {tokens, tokens}; }

/// How many products the library may add at a time in matrices of some hundred rows and columns, or more.
std::vector<int64_t> added_at_a_time(const at::TensorOptions& options);

/// In the order in which trials try them. RowSum wants tiles of multiples of 64.
std::vector<RowTiles> row_candidates(int64_t tokens);
/// Those whose parts added_at_a_time() divides.
std::vector<RowTiles> row_candidates_of_sums(int64_t tokens, const at::TensorOptions& options);

/// Adds the product of a.t() and b to `sum`, `part` rows of both at a time. An undefined sum is made by the first.
void add_products(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, int64_t part);

}  // namespace remat::tiles

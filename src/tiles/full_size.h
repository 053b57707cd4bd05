// src/tiles/full_size.h -- products of their full size, of which the operand that would be too large takes no memory.
//
// How a library divides a product among threads, and with it the order of its sums, depends on all sizes: products of
// slices do not tell it.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "tiles/rows.h"

namespace remat::tiles {

/// Why there are no tiles where memory cannot be mapped, as under `ulimit -v`.
inline constexpr const char* kNoAddresses = "no trial: the addresses that the whole would take cannot be mapped";

/// A matrix (rows, columns) of normally distributed numbers, whose memory is the same 2 MiB mapped again and again: a
/// product reads it as any other, and whoever writes to it writes in many places. Undefined where it cannot be mapped.
at::Tensor repeating(int64_t rows, int64_t columns, uint64_t seed, double deviation, const at::TensorOptions& options);
/// As sample_like(): where the layout of `like` allows, in that memory. Undefined for one that is.
at::Tensor numbers_like(const at::Tensor& like, uint64_t seed, double deviation);

/// A product that is too large, with a row for each token, as functions of a range of tokens write it to `out`. Holds
/// some of its rows, 3 of 64: where tiles may begin and end, and between.
class LargeProduct {
 public:
  using Write = std::function<void(at::Tensor& out, int64_t begin, int64_t count)>;

  LargeProduct(int64_t tokens, int64_t columns, const at::TensorOptions& options, Write write);
  /// Have these rows the same bits where it is made of tiles? Holds a tile.
  bool is_same_in(const RowTiles& tiles) const;
  /// Has `block`, all its rows and the columns from `begin` on, the bits of these rows?
  bool is_same_block(const at::Tensor& block, int64_t begin) const;
  bool is_known() const { return kept_.defined(); }  ///< memory could be mapped

 private:
  int64_t tokens_;
  Write write_;
  at::Tensor rows_;  ///< numbers of those that are held, ascending
  at::Tensor kept_;
};

/// A product with a row for each token, `function` of a large matrix with such rows. Holds the product.
class RowProduct {
 public:
  using Function = std::function<at::Tensor(const at::Tensor& rows)>;

  RowProduct(at::Tensor large, Function function);
  /// Has it the same bits where it is made of tiles? Holds a tile.
  bool is_same_in(const RowTiles& tiles) const;
  const at::Tensor& whole() const { return whole_; }

 private:
  at::Tensor large_;
  Function function_;
  at::Tensor whole_;
};

/// A sum over tokens: the product of large.t() and `other`, or (large_is_left is false) of other.t() and `large`. Holds
/// its bits' hash.
class TokenSum {
 public:
  TokenSum(at::Tensor large, at::Tensor other, bool large_is_left = true);
  /// Has it the same bits where it is added up by tiles and parts? Holds the sum, and a tile.
  bool is_same_in(const RowTiles& tiles) const;
  /// Has `sum`, which is contiguous, its bits?
  bool is_same(const at::Tensor& sum) const;

 private:
  void add(at::Tensor& sum, const at::Tensor& large, const at::Tensor& other, int64_t part) const;

  at::Tensor large_, other_;
  bool large_is_left_;
  uint64_t bits_ = 0;
};

}  // namespace remat::tiles

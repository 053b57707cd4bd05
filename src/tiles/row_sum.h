// src/tiles/row_sum.h -- the sum over the rows of a matrix that comes in tiles, with the bits of sum(0) of the whole.
//
// PyTorch's kernel for the CPU adds 16 rows to a sum, 16 such sums to another, and so on. At the end of the columns
// that a thread is given, some are left that fill no registers: of those, four sums are made in this way, each of every
// fourth row. Which columns these are depends on the size and the threads, and is found by trying.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat::tiles {

/// A range of columns.
struct Columns {
  int64_t begin = 0, end = 0;

  bool operator==(const Columns&) const = default;
};

/// 16 rows to a sum, 16 sums to another.
class CascadeSum {
 public:
  /// `rows`: the next ones. A multiple of 16 in all calls but the last.
  void add(const at::Tensor& rows);
  /// Undefined where there was no row.
  at::Tensor total() const;

 private:
  std::array<at::Tensor, 4> levels_;  ///< the first: what is left at the end
  int64_t rows_ = 0;
};

class RowSum {
 public:
  /// Of a matrix with so many rows. `in_fours`: the columns of which four sums are made. A matrix that comes as one
  /// tile is summed by the kernel.
  RowSum(int64_t rows, const std::vector<Columns>& in_fours);

  /// `tile`: the next rows. A multiple of 64 in all calls but the last.
  void add(const at::Tensor& tile);
  /// After at least one row.
  at::Tensor total() const;

 private:
  struct InFours {
    Columns columns;
    CascadeSum sums;  ///< of rows of four rows
    at::Tensor rest;  ///< the last rows, fewer than four
  };

  const int64_t rows_;
  at::Tensor of_one_tile_;
  CascadeSum all_;
  std::vector<InFours> in_fours_;
};

/// The columns of which four sums are made when a (rows, columns) matrix with `options` is summed by as many threads as
/// now; nothing where RowSum does not give the kernel's bits. Tries it in tiles of `tile` rows on memory of one row and
/// one number per row.
std::optional<std::vector<Columns>> columns_in_fours(int64_t rows, int64_t columns, int64_t tile,
                                                     const at::TensorOptions& options);

}  // namespace remat::tiles

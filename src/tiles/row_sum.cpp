#include "tiles/row_sum.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Rows of a sum, sums of the next level's.
constexpr int64_t kGroup = 16;
constexpr int64_t kFours = 4;
/// The kernel's groups are larger from here on.
constexpr int64_t kMostRows = int64_t(1) << 19;
/// A wrong order of adding gives other bits in three of four columns, or more.
constexpr int kTrials = 6, kChecks = 2;

/// A column that gave the same bits by chance stands between others that did not.
constexpr int64_t kGap = 8;

std::vector<Columns> ranges_of(const at::Tensor& marked) {
  const at::Tensor on_host = marked.contiguous();
  const bool* const marks = on_host.const_data_ptr<bool>();
  std::vector<Columns> ranges;
  for (int64_t i = 0; i < on_host.numel(); ++i) {
    if (!marks[i]) continue;
    if (!ranges.empty() && i - ranges.back().end < kGap) {
      ranges.back().end = i + 1;
    } else {
      ranges.push_back({i, i + 1});
    }
  }
  return ranges;
}

at::Tensor tiled_sum(const at::Tensor& matrix, int64_t tile, const std::vector<Columns>& in_fours) {
  RowSum sum(matrix.size(0), in_fours);
  for (int64_t begin = 0; begin < matrix.size(0); begin += tile) {
    sum.add(matrix.narrow(0, begin, std::min(tile, matrix.size(0) - begin)).contiguous());
  }
  return sum.total();
}

}  // namespace

void CascadeSum::add(const at::Tensor& rows) {
  const int64_t columns = rows.size(1), groups = rows.size(0) / kGroup;
  if (!levels_[0].defined()) {
    for (at::Tensor& level : levels_) level = at::zeros({columns}, rows.options());
  }
  const at::Tensor grouped = rows.narrow(0, 0, groups * kGroup).view({groups, kGroup, columns});
  at::Tensor sums = at::zeros({groups, columns}, rows.options());
  for (int64_t i = 0; i < kGroup; ++i) sums.add_(grouped.select(1, i));
  for (int64_t i = 0; i < groups; ++i) {
    rows_ += kGroup;
    levels_[1].add_(sums[i]);
    for (size_t level = 2; level < levels_.size(); ++level) {
      const int64_t rows_of_level = int64_t(1) << (4 * level);  // 16 to the power of `level`
      if (rows_ % rows_of_level != 0) break;
      levels_[level].add_(levels_[level - 1]);
      levels_[level - 1].zero_();
    }
  }
  for (int64_t i = groups * kGroup; i < rows.size(0); ++i) levels_[0].add_(rows[i]);
}

at::Tensor CascadeSum::total() const {
  if (!levels_[0].defined()) return {};
  at::Tensor total = levels_[0].clone();
  for (size_t level = 1; level < levels_.size(); ++level) total.add_(levels_[level]);
  return total;
}

RowSum::RowSum(int64_t rows, const std::vector<Columns>& in_fours) : rows_(rows) {
  for (const Columns& columns : in_fours) in_fours_.push_back({columns, {}, {}});
}

void RowSum::add(const at::Tensor& tile) {
  if (tile.size(0) == rows_) {
    of_one_tile_ = tile.sum(0);
    return;
  }
  all_.add(tile);
  for (InFours& some : in_fours_) {
    const int64_t columns = some.columns.end - some.columns.begin, fours = tile.size(0) / kFours;
    const at::Tensor rows = tile.narrow(1, some.columns.begin, columns).contiguous();
    if (fours > 0) some.sums.add(rows.narrow(0, 0, fours * kFours).view({fours, kFours * columns}));
    some.rest = rows.narrow(0, fours * kFours, tile.size(0) % kFours);
  }
}

at::Tensor RowSum::total() const {
  if (of_one_tile_.defined()) return of_one_tile_;
  at::Tensor total = all_.total();
  for (const InFours& some : in_fours_) {
    const int64_t columns = some.columns.end - some.columns.begin;
    at::Tensor sums = some.sums.total();
    sums = sums.defined() ? sums.view({kFours, columns}) : at::zeros({kFours, columns}, total.options());
    at::Tensor sum = total.narrow(0, some.columns.begin, columns);
    sum.copy_(sums[0]);
    for (int64_t i = 0; i < some.rest.size(0); ++i) sum.add_(some.rest[i]);
    for (int64_t i = 1; i < kFours; ++i) sum.add_(sums[i]);
  }
  return total;
}

std::optional<std::vector<Columns>> columns_in_fours(int64_t rows, int64_t columns, int64_t tile,
                                                     const at::TensorOptions& options) {
  if (rows >= kMostRows || tile % (kGroup * kFours) != 0) return std::nullopt;
  at::Tensor marked = at::zeros({columns}, options.dtype(at::kBool));
  for (int seed = 0; seed < kTrials; ++seed) {
    const at::Tensor matrix = overlapping(rows, columns, uint64_t(seed), options);
    marked.logical_or_(matrix.sum(0).ne(tiled_sum(matrix, tile, {})));
  }
  const std::vector<Columns> in_fours = ranges_of(marked);
  for (int seed = kTrials; seed < kTrials + kChecks; ++seed) {
    const at::Tensor matrix = overlapping(rows, columns, uint64_t(seed), options);
    if (!have_same_bits(matrix.sum(0), tiled_sum(matrix, tile, in_fours))) return std::nullopt;
  }
  return in_fours;
}

}  // namespace remat::tiles

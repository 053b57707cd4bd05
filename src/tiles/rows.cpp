#include "tiles/rows.h"

#include <algorithm>
#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Rows and parts of tiles.
constexpr std::array<std::array<int64_t, 2>, 8> kCandidates = {
    {{192, 192}, {384, 384}, {256, 256}, {128, 128}, {320, 320}, {448, 448}, {512, 512}, {768, 384}}};

constexpr int64_t kUsualRows = 512;  ///< but for many tokens

}  // namespace

std::vector<int64_t> added_at_a_time(const at::TensorOptions& options) {
  constexpr int64_t kWithAvx2 = 192, kWithAvx512 = 384;  // of MKL
  at::Tensor a = at::empty({4 * kWithAvx512, kWithAvx512}, options), b = at::empty_like(a);
  fill(a, 1);
  fill(b, 2);
  const at::Tensor whole = at::mm(a.t(), b);
  for (const int64_t part : {kWithAvx2, kWithAvx512}) {
    at::Tensor sum;
    add_products(sum, a, b, part);
    if (have_same_bits(sum, whole)) return {part};
  }
  return {kWithAvx2, kWithAvx512};
}

std::vector<RowTiles> row_candidates(int64_t tokens) {
  std::vector<RowTiles> candidates;
  for (const auto [rows, part] : kCandidates) {
    if (tokens < (rows > kUsualRows ? 8 * rows : rows + kShortRest))
      continue;  // a tile is to be small beside the whole
    const int64_t rest = tokens % rows;
    candidates.push_back({rows, part});
    if (rest < kShortRest) candidates.push_back({rows, part + kShortRest});
    // Some kernels add in another order for some hundred rows, too.
    if (rest >= kShortRest && tokens >= 4 * rows) candidates.push_back({rows, part, /*least=*/rows});
  }
  return candidates;
}

std::vector<RowTiles> row_candidates_of_sums(int64_t tokens, const at::TensorOptions& options) {
  std::vector<RowTiles> candidates = row_candidates(tokens);
  const std::vector<int64_t> added = added_at_a_time(options);
  std::erase_if(candidates, [&](const RowTiles& tiles) {
    return std::ranges::none_of(added, [&](int64_t number) { return tiles.part % number <= kShortRest; });
  });
  return candidates;
}

void add_products(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, int64_t part) {
  for (int64_t begin = 0; begin < a.size(0); begin += part) {
    const int64_t count = std::min(part, a.size(0) - begin);
    const at::Tensor left = a.narrow(0, begin, count).t(), right = b.narrow(0, begin, count);
    if (sum.defined()) {
      sum.addmm_(left, right);
    } else {
      sum = at::mm(left, right);
    }
  }
}

}  // namespace remat::tiles

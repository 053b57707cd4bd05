// Sums over rows that come in tiles, beside the kernel's own.
#include "tiles/row_sum.h"

#include "support/compare.h"

namespace remat::tiles {
namespace {

using test::same_bits;

at::Tensor sum_of_tiles(const at::Tensor& matrix, int64_t tile, const std::vector<Columns>& in_fours) {
  RowSum sum(matrix.size(0), in_fours);
  for (int64_t begin = 0; begin < matrix.size(0); begin += tile) {
    sum.add(matrix.narrow(0, begin, std::min(tile, matrix.size(0) - begin)));
  }
  return sum.total();
}

TEST(RowSum, HasTheBitsOfTheKernel) {
  torch::manual_seed(1);
  for (const auto& [rows, columns, tile] : std::vector<std::array<int64_t, 3>>{
           {1000, 640, 192}, {1000, 641, 192}, {387, 1009, 64}, {193, 3, 192}, {5000, 50, 320}, {130, 70, 192}}) {
    const at::Tensor matrix = torch::randn({rows, columns});
    const auto in_fours = columns_in_fours(rows, columns, tile, matrix.options());
    ASSERT_TRUE(in_fours.has_value()) << rows << " x " << columns;
    EXPECT_TRUE(same_bits(sum_of_tiles(matrix, tile, *in_fours), matrix.sum(0))) << rows << " x " << columns;
  }
}

TEST(RowSum, SaysWhichColumnsTheKernelAddsOtherwise) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_EQ(columns_in_fours(1000, 640, 192, at::kFloat), std::vector<Columns>{});
  const auto some = columns_in_fours(1000, 650, 192, at::kFloat);
  ASSERT_TRUE(some.has_value());
  ASSERT_EQ(some->size(), 1U);
  EXPECT_EQ(some->front().end, 650);
  at::set_num_threads(before);
}

TEST(RowSum, OfTilesThatCutAGroupIsUnknown) {
  EXPECT_EQ(columns_in_fours(1000, 640, 100, at::kFloat), std::nullopt);
  EXPECT_EQ(columns_in_fours(int64_t(1) << 20, 1, 192, at::kFloat), std::nullopt);
}

}  // namespace
}  // namespace remat::tiles

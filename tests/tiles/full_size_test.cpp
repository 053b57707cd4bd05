// Products of their full size in little memory.
#include "tiles/full_size.h"

#include <gtest/gtest.h>
#include <remat/memory.h>
#include <torch/torch.h>

#include "tiles/samples.h"

namespace remat::test {
namespace {

using tiles::LargeProduct;
using tiles::RowProduct;
using tiles::RowTiles;
using tiles::TokenSum;

TEST(FullSize, AMatrixRepeatsItsNumbers) {
  memory::start_accounting();
  const int64_t before = memory::current();
  const at::Tensor matrix = tiles::repeating(4096, 4096, 1, 1, at::kFloat);
  ASSERT_TRUE(matrix.defined());
  EXPECT_LE(memory::current() - before, 2 << 20);
  EXPECT_EQ(matrix.sizes(), (std::vector<int64_t>{4096, 4096}));
  EXPECT_TRUE(matrix.is_contiguous());
  const at::Tensor all = matrix.view(-1);
  const int64_t period = 511 * 4096 / 4;
  EXPECT_TRUE(torch::equal(all.narrow(0, 0, 1000), all.narrow(0, period, 1000)));
  EXPECT_FALSE(torch::equal(matrix[0], matrix[1]));
  EXPECT_NEAR(matrix.std().item<double>(), 1, 0.01);
  EXPECT_EQ(tiles::repeating(3, 5, 1, 1, at::kDouble).sizes(), (std::vector<int64_t>{3, 5}));
}

TEST(FullSize, RowsOfAProductAreCompared) {
  const at::Tensor large = torch::randn({300, 20}), weight = torch::randn({20, 7});
  const RowProduct product(large, [&](const at::Tensor& rows) { return at::mm(rows, weight); });
  EXPECT_TRUE(torch::equal(product.whole(), large.mm(weight)));
  EXPECT_TRUE(product.is_same_in({300, 300}));
  // What depends on how many rows there are differs in any tile.
  const RowProduct counted(large, [](const at::Tensor& rows) { return rows * double(rows.size(0)); });
  EXPECT_TRUE(counted.is_same_in({300, 300}));
  EXPECT_FALSE(counted.is_same_in({256, 256}));
}

TEST(FullSize, SumsOverTokensAreCompared) {
  const at::Tensor whole_numbers = torch::randint(-4, 5, {500, 6}).to(at::kFloat),
                   others = torch::randint(-4, 5, {500, 3}).to(at::kFloat);
  for (const bool large_is_left : {true, false}) {
    const TokenSum exact(whole_numbers, others, large_is_left);  // in any order
    EXPECT_TRUE(exact.is_same_in({192, 192})) << large_is_left;
    EXPECT_TRUE(exact.is_same(large_is_left ? whole_numbers.t().mm(others) : others.t().mm(whole_numbers)));
    EXPECT_FALSE(exact.is_same((large_is_left ? whole_numbers.t().mm(others) : others.t().mm(whole_numbers)) + 1));
  }
  const at::Tensor numbers = torch::randn({500, 6}), rest = torch::randn({500, 3});
  EXPECT_FALSE(TokenSum(numbers, rest).is_same_in({64, 1}));  // rounded after each
}

TEST(FullSize, SomeRowsOfALargeProductAreCompared) {
  memory::start_accounting();
  const int64_t tokens = 1000, columns = 5000;
  const at::Tensor rows = torch::randn({tokens, 1}), of_columns = torch::randn({1, columns});
  // One number of the product is another where it is made of tiles.
  const auto product_but_for = [&](int64_t row, int64_t column) {
    return LargeProduct(tokens, columns, at::kFloat, [=](at::Tensor& out, int64_t begin, int64_t count) {
      at::mul_out(out, rows.narrow(0, begin, count), of_columns);
      if (row >= begin && row < begin + count && count < tokens) out[row - begin][column] += 1;
    });
  };
  const RowTiles tiles{384, 384};
  memory::reset_peak();
  const int64_t before = memory::current();
  const LargeProduct same = product_but_for(tokens, 0);
  ASSERT_TRUE(same.is_known());
  EXPECT_TRUE(same.is_same_in(tiles));
  EXPECT_LT(memory::peak() - before, tokens * columns * 4 / 2);
  for (const int64_t row : {0, 383, 384, 767, 768, 990, 999}) {
    EXPECT_FALSE(product_but_for(row, columns - 1).is_same_in(tiles)) << row;
    EXPECT_TRUE(product_but_for(row, 0).is_same_in({tokens, tokens})) << row;
  }
  const at::Tensor block = rows * of_columns.narrow(1, 64, 128);
  EXPECT_TRUE(same.is_same_block(block, 64));
  EXPECT_FALSE(same.is_same_block(block, 65));
}

}  // namespace
}  // namespace remat::test

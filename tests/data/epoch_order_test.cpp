#include "data/epoch_order.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace remat::data {
namespace {

std::vector<int64_t> epoch(EpochOrder order, int64_t number, int64_t examples) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < examples; ++i) result.push_back(order.at(number * examples + i));
  return result;
}

TEST(EpochOrder, EveryEpochHasEveryExampleOnceInAnotherOrder) {
  std::vector<int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  const auto first = epoch({50, 7}, 0, 50), second = epoch({50, 7}, 1, 50), other = epoch({50, 8}, 0, 50);
  EXPECT_NE(first, second);
  EXPECT_NE(first, other);
  EXPECT_NE(first, all);
  for (auto order : {first, second, other}) {
    std::ranges::sort(order);
    EXPECT_EQ(order, all);
  }
}

TEST(EpochOrder, DoesNotDependOnWhatWasAskedBefore) {
  EpochOrder order(20, 3);
  const auto late = order.at(65), early = order.at(5);
  EXPECT_EQ(order.at(65), late);
  EXPECT_EQ(EpochOrder(20, 3).at(5), early);
}

// Each example comes first in about a tenth of 2000 epochs: within five standard deviations.
TEST(EpochOrder, EveryExampleComesFirstAsOften) {
  std::vector<int> counts(10);
  EpochOrder order(10, 0);
  for (int64_t i = 0; i < 2000; ++i) ++counts[static_cast<size_t>(order.at(i * 10))];
  for (const int count : counts) EXPECT_NEAR(count, 200, 67);
}

TEST(EpochOrder, OneExampleIsAlwaysTheSame) {
  EpochOrder order(1, 0);
  EXPECT_EQ(order.at(0), 0);
  EXPECT_EQ(order.at(12), 0);
}

}  // namespace
}  // namespace remat::data

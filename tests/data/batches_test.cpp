#include "data/batches.h"

#include <gtest/gtest.h>

namespace remat::data {
namespace {

TEST(Batches, OfStepsFollowTheOrderOfEpochs) {
  Batches batches(5, 3, 7);
  EpochOrder order(5, 7);
  int64_t position = 0;
  for (int64_t step = 1; step <= 4; ++step) {
    const auto batch = batches.of_step(step);
    EXPECT_EQ(batch.size(), 3U);
    for (const int64_t example : batch) EXPECT_EQ(example, order.at(position++));
  }
}

TEST(Batches, InOrderHaveEveryExampleOnce) {
  const Batches batches(5, 3, 7);
  ASSERT_EQ(batches.count(), 2);
  EXPECT_EQ(batches.in_order(0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(batches.in_order(1), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(Batches(6, 3, 7).count(), 2);
}

}  // namespace
}  // namespace remat::data

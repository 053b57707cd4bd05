#include "util/move_order.h"

#include <gtest/gtest.h>

namespace remat::test {
namespace {

using Place = MoveOrder::Place;

TEST(MoveOrder, BytesGoWhenFourMoreAreLeaving) {
  MoveOrder order;
  for (const uint32_t value : {7, 8, 9, 10}) order.leave(value);
  EXPECT_EQ(order.next_gone(), std::nullopt);
  EXPECT_EQ(order.place(7), Place::kLeaving);
  order.leave(11);
  EXPECT_EQ(order.next_gone(), 7U);
  EXPECT_EQ(order.next_gone(), std::nullopt);
  EXPECT_EQ(order.place(7), Place::kAway);
  EXPECT_EQ(order.oldest_gone(), 8U) << "where memory runs short";
  for (const uint32_t value : {9, 10, 11}) EXPECT_EQ(order.oldest_gone(), value);
  EXPECT_EQ(order.oldest_gone(), std::nullopt);
}

TEST(MoveOrder, TheLastToLeaveComeBackFirstTwoAtATime) {
  MoveOrder order;
  for (uint32_t value = 0; value < 5; ++value) order.leave(value);
  while (order.oldest_gone()) {
  }
  EXPECT_EQ(order.next_coming(), 4U);
  EXPECT_EQ(order.next_coming(), 3U);
  EXPECT_EQ(order.next_coming(), std::nullopt);
  EXPECT_EQ(order.take(4), Place::kComing);
  EXPECT_EQ(order.next_coming(), 2U);
  EXPECT_EQ(order.take(0), Place::kAway) << "asked for out of order";
  EXPECT_EQ(order.take(3), Place::kComing);
  EXPECT_EQ(order.next_coming(), 1U);
  order.defer(1);
  EXPECT_EQ(order.place(1), Place::kAway);
  EXPECT_EQ(order.next_coming(), 1U);
}

TEST(MoveOrder, WhatWasUsedComesBackInTheOrderInWhichItWas) {
  MoveOrder order;
  for (const uint32_t used : {5, 4, 3}) order.leave_at_once(used);
  EXPECT_EQ(order.next_coming(), 5U);
  EXPECT_EQ(order.next_coming(), 4U);
  EXPECT_EQ(order.stop_coming(), 4U) << "memory runs short";
  EXPECT_EQ(order.stop_coming(), 5U);
  EXPECT_EQ(order.stop_coming(), std::nullopt);
  EXPECT_EQ(order.next_coming(), 5U);
  EXPECT_EQ(order.take(5), Place::kComing);
  order.defer(5);
  EXPECT_EQ(order.place(5), Place::kHere) << "somebody took it meanwhile";
}

TEST(MoveOrder, WhatIsTakenIsNowhere) {
  MoveOrder order;
  order.leave(1);
  order.leave_at_once(2);
  EXPECT_FALSE(order.is_empty());
  EXPECT_EQ(order.take(1), Place::kLeaving);
  EXPECT_EQ(order.take(2), Place::kAway);
  EXPECT_EQ(order.take(2), Place::kHere);
  EXPECT_EQ(order.take(3), Place::kHere);
  EXPECT_TRUE(order.is_empty());
}

}  // namespace
}  // namespace remat::test

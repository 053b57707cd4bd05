#include "session/pool_shares.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace remat::test {
namespace {

using Curve = std::vector<PoolDemand::Point>;

PoolDemand demand(Curve curve, double step_seconds = 1) {
  return {.curve = std::move(curve), .step_seconds = step_seconds};
}

std::shared_ptr<const PoolDemand> other(Curve curve, double step_seconds = 1) {
  return std::make_shared<const PoolDemand>(demand(std::move(curve), step_seconds));
}

/// 100 bytes at least, 200 without recomputation, of which there are so many seconds with less.
Curve line(double seconds) { return {{100, seconds}, {200, 0}}; }

TEST(PoolShares, AStepAloneHasAll) { EXPECT_EQ(share_of(demand(line(1)), {}, 1000), 1000); }

TEST(PoolShares, BytesGoToWhomTheySaveTheMostSeconds) {
  EXPECT_EQ(share_of(demand(line(3)), {other(line(2))}, 300), 200);
  EXPECT_EQ(share_of(demand(line(2)), {other(line(3))}, 300), 100);
}

TEST(PoolShares, SecondsCountByTheTimeThatTheBytesAreHeld) {
  EXPECT_EQ(share_of(demand(line(3), /*step_seconds=*/2), {other(line(2), 1)}, 300), 100);
  EXPECT_EQ(share_of(demand(line(3), 2), {other(line(2), 4)}, 300), 200);
}

TEST(PoolShares, APriceIsOfTheWholeWayAlongACurve) {
  // By the byte, 110 bytes save nearly nothing, and 200 more than the other's 150.
  const Curve late{{100, 10}, {110, 9.9}, {200, 0}};
  const Curve early{{100, 10}, {150, 6}, {200, 5}};
  EXPECT_EQ(share_of(demand(late), {other(early)}, 300), 200);
  EXPECT_EQ(share_of(demand(early), {other(late)}, 300), 100);
}

TEST(PoolShares, WhatTheBestCannotUseGoesToTheNext) {
  EXPECT_EQ(share_of(demand(line(1)), {other(line(5))}, 400), 200);
  EXPECT_EQ(share_of(demand(Curve{{100, 5}, {400, 0}}), {other(Curve{{100, 1}, {150, 0}})}, 260), 100 + 10 / 2)
      << "300 bytes more are not there, 50 for the other one are, and 10 are left";
}

TEST(PoolShares, WhatNobodyNeedsIsDividedEqually) {
  EXPECT_EQ(share_of(demand(line(1)), {other(line(5)), other(Curve{{50, 0}})}, 200 + 200 + 50 + 90), 200 + 30);
}

TEST(PoolShares, OthersThatDoNotFitOrAreNotKnownGetNothing) {
  EXPECT_EQ(share_of(demand(line(1)), {other(line(5)), other(line(5))}, 250), 100 + 50 / 2);
  EXPECT_EQ(share_of(demand(line(1)), {other({})}, 250), 250);
  EXPECT_EQ(share_of(demand(line(1)), {other(line(5))}, 150), 150);
}

}  // namespace
}  // namespace remat::test

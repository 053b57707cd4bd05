#include "tiers/extents.h"

#include <gtest/gtest.h>

using namespace remat::tiers;

namespace {

std::vector<std::pair<int64_t, int64_t>> pairs(const std::optional<std::vector<Extent>>& extents) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const auto& extent : extents.value()) found.emplace_back(extent.offset, extent.bytes);
  return found;
}
using Pairs = std::vector<std::pair<int64_t, int64_t>>;

TEST(Extents, AreWholeUnits) {
  Extents extents(10, 1000);
  EXPECT_EQ(pairs(extents.take(1)), (Pairs{{0, 10}}));
  EXPECT_EQ(pairs(extents.take(11)), (Pairs{{10, 20}}));
  EXPECT_EQ(pairs(extents.take(0)), Pairs{});
  EXPECT_EQ(extents.in_use(), 30);
  EXPECT_EQ(extents.end(), 30);
}

TEST(Extents, UseTheSmallestGapThatIsLongEnough) {
  Extents extents(10, 1000);
  const auto large = extents.take(50), between = extents.take(10), small = extents.take(20), last = extents.take(10);
  extents.give_back(*large);
  extents.give_back(*small);
  EXPECT_EQ(pairs(extents.take(20)), (Pairs{{60, 20}}));
  EXPECT_EQ(pairs(extents.take(30)), (Pairs{{0, 30}}));
  EXPECT_EQ(pairs(extents.take(20)), (Pairs{{30, 20}}));
  EXPECT_EQ(extents.end(), 90);
}

TEST(Extents, JoinGapsOnBothSides) {
  Extents extents(10, 1000);
  const auto a = extents.take(10), b = extents.take(10), c = extents.take(10), last = extents.take(10);
  extents.give_back(*a);
  extents.give_back(*c);
  extents.give_back(*b);
  EXPECT_EQ(pairs(extents.take(30)), (Pairs{{0, 30}}));
}

TEST(Extents, GrowTheFileFromAGapAtItsEnd) {
  Extents extents(10, 1000);
  const auto first = extents.take(10), second = extents.take(10);
  extents.give_back(*second);
  EXPECT_EQ(pairs(extents.take(30)), (Pairs{{10, 30}}));
  EXPECT_EQ(extents.end(), 40);
}

TEST(Extents, AreSeveralGapsWhereTheFileMayNotGrow) {
  Extents extents(10, 59);  // 50: whole units
  const auto a = extents.take(10), b = extents.take(10), c = extents.take(10), d = extents.take(10);
  extents.give_back(*a);
  extents.give_back(*c);
  EXPECT_EQ(extents.take(31), std::nullopt);
  const auto spread = extents.take(30);
  EXPECT_EQ(pairs(spread), (Pairs{{0, 10}, {20, 10}, {40, 10}}));
  EXPECT_EQ(extents.take(1), std::nullopt);
  extents.give_back(*spread);
  EXPECT_EQ(extents.in_use(), 20);
  EXPECT_EQ(pairs(extents.take(10)), (Pairs{{0, 10}}));
}

TEST(Extents, RefuseWhatNoFileHolds) {
  Extents extents(4096, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(extents.take(std::numeric_limits<int64_t>::max()), std::nullopt);
}

}  // namespace

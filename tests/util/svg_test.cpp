#include <remat/support/svg.h>

#include <gtest/gtest.h>

namespace remat {
namespace {

TEST(Svg, TicksAreRoundAndFew) {
  EXPECT_DOUBLE_EQ(support::tick_distance(100, 5), 20);
  EXPECT_DOUBLE_EQ(support::tick_distance(101, 5), 50);
  EXPECT_DOUBLE_EQ(support::tick_distance(40, 5), 10);
  EXPECT_DOUBLE_EQ(support::tick_distance(0.3, 5), 0.1);
  EXPECT_DOUBLE_EQ(support::tick_distance(26, 5), 10);
  EXPECT_DOUBLE_EQ(support::tick_distance(5, 5), 1);
  EXPECT_DOUBLE_EQ(support::tick_distance(1, 5), 0.2);
}

TEST(Svg, NumbersHaveTwoDecimalsAtMost) {
  EXPECT_EQ(support::svg_number(3.14159), "3.14");
  EXPECT_EQ(support::svg_number(3.10), "3.1");
  EXPECT_EQ(support::svg_number(300), "300");
  EXPECT_EQ(support::svg_number(-0.001), "0");
}

TEST(Svg, TextIsEscaped) {
  EXPECT_EQ(support::escape_xml("<a href=\"x\"> & \x01"), "&lt;a href=&quot;x&quot;&gt; &amp; ?");
}

}  // namespace
}  // namespace remat

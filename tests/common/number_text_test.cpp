#include "common/number_text.h"

#include <vector>

#include <gtest/gtest.h>

#include "support/comma_locale.h"

namespace remat::common {
namespace {

TEST(AppNumberText, IsTheSameUnderEveryLocale) {
  const test::CommaLocale commas;
  if (!test::CommaLocale::works()) GTEST_SKIP() << "no locale with a comma can be made here";
  EXPECT_EQ(fixed_text(3.14159, 2), "3.14");
  EXPECT_EQ(fixed_text(-0.5, 2), "-0.50");
  EXPECT_EQ(short_text(0.25), "0.25");
  EXPECT_EQ(short_text(1e9), "1e+09");
  EXPECT_EQ(list_text(std::vector<int64_t>{2, 3}), "[2, 3]");
  EXPECT_EQ(list_text(std::vector<int64_t>{}), "[]");
}

}  // namespace
}  // namespace remat::common

#include "cli/table.h"

#include <gtest/gtest.h>

namespace remat::cli {
namespace {

TEST(TableTest, FirstColumnLeftOthersRight) {
  Table table;
  table.add({"", "plain", "remat"});
  table.add({"peak memory", "1.21 GiB", "512 MiB"});
  table.add({"budget", "-"});
  EXPECT_EQ(table.to_string(),
            "                plain    remat\n"
            "peak memory  1.21 GiB  512 MiB\n"
            "budget              -\n");
}

TEST(TableTest, AnEmptyTableIsEmpty) { EXPECT_EQ(Table().to_string(), ""); }

TEST(FormatTest, SecondsHaveThreeDigits) {
  EXPECT_EQ(format_seconds(0.0012345), "1.23 ms");
  EXPECT_EQ(format_seconds(0.0451), "45.1 ms");
  EXPECT_EQ(format_seconds(0.999), "999 ms");
  EXPECT_EQ(format_seconds(0.9996), "1.00 s");
  EXPECT_EQ(format_seconds(12.34), "12.3 s");
  EXPECT_EQ(format_seconds(123.4), "123 s");
}

TEST(FormatTest, ClocksShowHoursOnlyWhenThereAreSome) {
  EXPECT_EQ(format_clock(0), "0:00");
  EXPECT_EQ(format_clock(59.6), "1:00");
  EXPECT_EQ(format_clock(3599), "59:59");
  EXPECT_EQ(format_clock(3723), "1:02:03");
  EXPECT_EQ(format_clock(-5), "0:00");
}

TEST(FormatTest, CountsAreGroupedByThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(25345678), "25,345,678");
  EXPECT_EQ(format_count(-123456), "-123,456");
}

}  // namespace
}  // namespace remat::cli

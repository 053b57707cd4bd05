#include <remat/budget.h>

#include <gtest/gtest.h>
#include <remat/error.h>

namespace remat {
namespace {

TEST(Budget, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(Budget::parse("2GiB").byte_count(), int64_t{2} << 30);
  EXPECT_EQ(Budget::parse("1500MB").byte_count(), 1'500'000'000);
  EXPECT_EQ(Budget::parse(" 1.5 gib ").byte_count(), int64_t{3} << 29);
  EXPECT_EQ(Budget::parse("64k").byte_count(), 65536);
  EXPECT_EQ(Budget::parse("1073741824").byte_count(), int64_t{1} << 30);
  EXPECT_EQ(Budget::parse("9007199254740993").byte_count(), 9007199254740993) << "not rounded through a double";
}

TEST(Budget, ReadsSharesAndTheDeviceLimit) {
  EXPECT_EQ(Budget::parse("40%").kind(), Budget::Kind::kPercent);
  EXPECT_DOUBLE_EQ(Budget::parse("12.5 %").share(), 12.5);
  EXPECT_EQ(Budget::parse("device").kind(), Budget::Kind::kDeviceLimit);
  EXPECT_EQ(Budget(), Budget::parse("device"));
}

TEST(Budget, RefusesNonsense) {
  for (const char* text : {"", "GiB", "-1GiB", "0", "0%", "101%", "2GX", "2 apples", "1e400GiB", "99999999TiB", "nan",
                           "inf", "1.5", "0x10", "2GiBB", "40%%", "--3"}) {
    EXPECT_THROW(Budget::parse(text), Error) << text;
  }
  EXPECT_THROW(Budget::bytes(0), Error);
  EXPECT_THROW(Budget::percent(-1), Error);
}

TEST(Budget, SaysWhatWasWrongAndWhatToWrite) {
  try {
    Budget::parse("12 parsecs");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "[budget] \"12 parsecs\" has an unknown unit; write bytes (\"2GiB\", \"1500MB\", 1073741824), a share of "
        "plain's activation peak (\"40%\") or \"device\"");
  }
}

TEST(Budget, TextReadsBack) {
  for (const char* text : {"2.00 GiB", "40%", "device limit"}) {
    EXPECT_EQ(Budget::parse(text).to_string(), text);
  }
}

TEST(FormatBytes, KeepsThreeSignificantDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "0.98 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(150 * 1024), "150 KiB");
  EXPECT_EQ(format_bytes((int64_t{1} << 30) * 12), "12.0 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
  EXPECT_EQ(format_exact_bytes(1536), "1.50 KiB (1536 bytes)");
}

}  // namespace
}  // namespace remat

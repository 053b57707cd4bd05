#include <remat/budget.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

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
  EXPECT_EQ(Budget::parse(" Pressure ").kind(), Budget::Kind::kPressure);
  EXPECT_EQ(Budget::parse("pressure"), Budget::pressure());
  EXPECT_EQ(Budget::parse(Budget::pressure().to_string()), Budget::pressure());
  EXPECT_EQ(Budget(), Budget::parse("device"));
}

TEST(Budget, RefusesNonsense) {
  for (const char* text :
       {"",          "GiB",      "-1GiB", "0",      "0%",          "101%",    "2GX",  "2 apples",
        "1e400GiB",  "nan%",     "inf",   "nan",    "99999999TiB", "1.5",     "1e-3", "1e19",
        "1234567.5", "0x10",     "2GiBB", "40%%",   "--3",         "1e10GiB", "-1e9", "9223372036854775808",
        "1 G i B",   "1 000 MB", "4 0%",  "de vice"}) {
    EXPECT_THROW(Budget::parse(text), Error) << text;
  }
  EXPECT_THROW(Budget::bytes(0), Error);
  EXPECT_THROW(Budget::percent(-1), Error);
  try {
    Budget::percent(100.0001);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"100.0001%\""), std::string::npos) << error.what();
  }
}

TEST(Budget, SaysWhatWasWrongAndWhatToWrite) {
  try {
    Budget::parse("12 parsecs");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "[budget] \"12 parsecs\" has an unknown unit; write bytes (\"2GiB\", \"1500MB\", 1073741824), a share of "
        "plain's activation peak (\"40%\"), \"device\" or \"pressure\"");
  }
}

std::string message_of(const char* text) {
  try {
    return Budget::parse(text).to_string();
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Budget, TakesTheTextOfALiteralOrAString) {
  struct Options {
    Budget budget = {};
  };
  EXPECT_EQ((Options{.budget = "40%"}.budget), Budget::percent(40));
  EXPECT_EQ((Options{.budget = std::string("2GiB")}.budget), Budget::bytes(int64_t{2} << 30));
  EXPECT_THROW((Options{.budget = "lots"}), Error);
  const char* const unset = nullptr;  // what getenv() gives
  EXPECT_THROW((Options{.budget = unset}), Error);
  EXPECT_THROW(Budget::parse(unset), Error);
  static_assert(!std::is_convertible_v<int, Budget> && !std::is_convertible_v<std::nullptr_t, Budget>,
                "a number would leave open whether it is bytes or a share");
}

TEST(Budget, ANumberTooSmallForBytesAsksWhetherItIsAShare) {
  for (const auto& [text, share] : {std::pair{"40", "40%"}, {"100", "100%"}, {"12.5", "12.5%"}, {"0.4", "40%"}}) {
    const std::string message = message_of(text);
    EXPECT_EQ(message.rfind("[budget] \"" + std::string(text) + "\" would be ", 0), 0u) << message;
    EXPECT_NE(message.find("did you mean \"" + std::string(share) + "\"?"), std::string::npos) << message;
  }
  EXPECT_EQ(Budget::parse("40 B").byte_count(), 40) << "with a unit it is meant";
  EXPECT_EQ(Budget::parse("101").byte_count(), 101);
}

TEST(Budget, ReadsPowersOfTen) {
  EXPECT_EQ(Budget::parse("1e9").byte_count(), 1'000'000'000);
  EXPECT_EQ(Budget::parse("1.5e9").byte_count(), 1'500'000'000);
  EXPECT_EQ(Budget::parse("2E3 MiB").byte_count(), int64_t{2000} << 20);
}

TEST(Budget, MessagesEchoWhatWasWritten) {
  for (const char* text : {"-1GiB", "0.0 GiB", "0%", "-3 %", "100.5%", "1e19", "99999999TiB", "1e999", "-0"}) {
    const std::string message = message_of(text);
    EXPECT_EQ(message.rfind("[budget] \"" + std::string(text) + "\" ", 0), 0u) << message;
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

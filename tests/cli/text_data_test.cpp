#include "cli/text_data.h"

#include <set>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "cli/expect_error.h"
#include "cli/temporary_directory.h"

namespace remat::cli {
namespace {

class TextDataTest : public ::testing::Test {
 protected:
  test::TemporaryDirectory directory_;
};

TEST_F(TextDataTest, ExamplesAreWindowsOfTheText) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7919 >> 3);
  const TextData data(directory_.write("text", text), /*seq=*/16, /*seed=*/0);
  for (int64_t row = 0; row < 100; ++row) {
    const auto example = data.example(1, row);
    EXPECT_EQ(example.size(), 17u);
    EXPECT_NE(text.find(example), std::string::npos);
  }
}

TEST_F(TextDataTest, ExamplesReachBothEndsOfTheText) {
  const TextData data(directory_.write("text", "abcdef"), /*seq=*/3, /*seed=*/0);
  std::set<std::string_view> seen;
  for (int64_t row = 0; row < 200; ++row) seen.insert(data.example(1, row));
  EXPECT_EQ(seen, (std::set<std::string_view>{"abcd", "bcde", "cdef"}));
}

TEST_F(TextDataTest, ExamplesDependOnSeedStepAndRowAlone) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i);
  const auto path = directory_.write("text", text);
  const TextData data(path, 32, 7), same(path, 32, 7), other(path, 32, 8);
  EXPECT_EQ(data.example(3, 4), same.example(3, 4));
  EXPECT_NE(data.example(3, 4), other.example(3, 4));
  EXPECT_NE(data.example(3, 4), data.example(4, 3));
  EXPECT_NE(data.example(3, 4), data.example(3, 5));
}

TEST_F(TextDataTest, FingerprintTellsTextsApart) {
  const TextData a(directory_.write("a", "some text"), 4, 0), b(directory_.write("b", "some texT"), 4, 0);
  const TextData again(directory_.path("a"), 4, 1);
  EXPECT_NE(a.fingerprint(), b.fingerprint());
  EXPECT_EQ(a.fingerprint(), again.fingerprint());
}

TEST_F(TextDataTest, ATextOfExactlyOneExampleWorks) {
  EXPECT_EQ(TextData(directory_.write("text", "abcde"), 4, 0).example(9, 9), "abcde");
}

TEST_F(TextDataTest, TooShortTextsSayWhatIsNeeded) {
  const auto empty = directory_.write("empty", "");
  EXPECT_ERROR(TextData(empty, 4, 0), "[data] '" + empty + "' has 0 bytes, one example needs 5; give a longer text");
  const auto four = directory_.write("four", "abcd");
  EXPECT_ERROR(TextData(four, 4, 0), "has 4 bytes, one example needs 5");
}

TEST_F(TextDataTest, WhatIsNoFileIsRefused) {
  EXPECT_ERROR(TextData("/no/such/file", 4, 0), "[data] cannot read '/no/such/file' (No such file or directory); give");
  EXPECT_ERROR(TextData(directory_.path(""), 4, 0), "is a directory");
  EXPECT_ERROR(TextData("/dev/zero", 4, 0), "is a device");
}

}  // namespace
}  // namespace remat::cli

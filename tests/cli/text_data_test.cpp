#include "cli/text_data.h"

#include <set>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

/// The bytes of an example.
std::string window(const TextData& data, int64_t step, int64_t row) {
  std::string bytes;
  for (const int64_t token : data.example(step, row)) bytes += static_cast<char>(token);
  return bytes;
}

class TextDataTest : public ::testing::Test {
 protected:
  test::TemporaryDirectory directory_;
};

TEST_F(TextDataTest, ExamplesAreWindowsOfTheText) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7919 >> 3);
  const TextData data(directory_.write("text", text), /*seq=*/16, /*seed=*/0);
  for (int64_t row = 0; row < 100; ++row) {
    const auto example = window(data, 1, row);
    EXPECT_EQ(example.size(), 17u);
    EXPECT_NE(text.find(example), std::string::npos);
  }
}

TEST_F(TextDataTest, ExamplesReachBothEndsOfTheText) {
  const TextData data(directory_.write("text", "abcdef"), /*seq=*/3, /*seed=*/0);
  std::set<std::string> seen;
  for (int64_t row = 0; row < 200; ++row) seen.insert(window(data, 1, row));
  EXPECT_EQ(seen, (std::set<std::string>{"abcd", "bcde", "cdef"}));
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
  EXPECT_EQ(window(TextData(directory_.write("text", "abcde"), 4, 0), 9, 9), "abcde");
}

TEST_F(TextDataTest, BytesAreNumbersFrom0To255) {
  EXPECT_EQ(TextData(directory_.write("text", "\xFF\x01"), 1, 0).example(1, 0), (std::vector<int64_t>{255, 1}));
}

TEST_F(TextDataTest, ExamplesAreWindowsOfTokensWhereTheTextIsEncoded) {
  const auto encode = [](std::string_view text) {
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < text.size(); i += 2) tokens.push_back(1000 + text[i]);
    return tokens;
  };
  const TextData data(directory_.write("text", "a.b.c.d."), /*seq=*/3, /*seed=*/0, encode);
  EXPECT_EQ(data.tokens(), 4);
  EXPECT_EQ(data.example(1, 0), (std::vector<int64_t>{1097, 1098, 1099, 1100}));
  EXPECT_ERROR(TextData(directory_.path("text"), 4, 0, encode), "has 4 tokens, one example needs 5");
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

#include "tokenizers/added_tokens.h"

#include <random>

#include <gtest/gtest.h>

namespace remat::tokenizers {
namespace {

/// Pieces as they are, tokens as their ids in <>.
std::string split(const std::vector<AddedToken>& tokens, std::string_view text) {
  std::string result;
  AddedTokenFinder(tokens).split(
      text, [&](std::string_view piece) { result += "|" + std::string(piece); },
      [&](const AddedToken& token) { result += "<" + std::to_string(token.id) + ">"; });
  return result;
}

TEST(AddedTokens, TheLongestFromTheLeftIsFound) {
  const std::vector<AddedToken> tokens{
      {.content = "ab", .id = 1}, {.content = "abcd", .id = 2}, {.content = "é", .id = 3}};
  EXPECT_EQ(split(tokens, "xabcdabcé"), "|x<2><1>|c<3>");
  EXPECT_EQ(split(tokens, ""), "");
  EXPECT_EQ(split({}, "ab"), "|ab");
}

TEST(AddedTokens, SpacesBesideThemMayBeTaken) {
  EXPECT_EQ(split({{.content = "T", .id = 1, .lstrip = true}}, "a \u00A0T b"), "|a<1>| b");
  EXPECT_EQ(split({{.content = "T", .id = 1, .rstrip = true}}, "a T\n b"), "|a <1>|b");
  EXPECT_EQ(split({{.content = "T", .id = 1, .lstrip = true, .rstrip = true}}, " T  T "), "<1><1>");
}

TEST(AddedTokens, WhatTheOneBeforeTookAsSpacesIsNotTakenAgain) {
  const AddedToken t{.content = "T", .id = 1, .rstrip = true};
  EXPECT_EQ(split({t, {.content = " ", .id = 2, .lstrip = true}}, "aT  b"), "|a<1>|b");
  EXPECT_EQ(split({t, {.content = " ", .id = 2, .lstrip = true, .rstrip = true}}, "T  b \n "), "<1>|b<2>");
  EXPECT_EQ(split({t, {.content = " b", .id = 2, .lstrip = true}}, "T   b"), "<1><2>");
  // As transformers, which takes a space twice here.
  EXPECT_EQ(split({t, {.content = " ", .id = 2}}, "T  b"), "<1><2><2>|b");
}

TEST(AddedTokens, SpacesWithoutEndTakeNoLongTime) {
  const std::string spaces(2'000'000, ' ');
  EXPECT_EQ(split({{.content = " ", .id = 1, .lstrip = true, .rstrip = true}}, spaces), "<1>");
  EXPECT_EQ(split({{.content = " ", .id = 1, .rstrip = true}}, spaces).size(), 3 * spaces.size());
}

TEST(AddedTokens, InsideOfWordsTheyMayBeLeft) {
  const std::vector<AddedToken> tokens{{.content = "ab", .id = 1, .single_word = true}};
  EXPECT_EQ(split(tokens, "ab cab abé ab-"), "<1>| cab abé <1>|-");
}

TEST(AddedTokens, AmongManyTheSameAreFoundAsOneByOne) {
  std::mt19937 random(1);
  std::vector<AddedToken> tokens;
  for (int64_t id = 0; id < 200; ++id) {
    std::string content;
    for (size_t i = random() % 6 + 1; i > 0; --i)
      content += static_cast<char>(random() % 3 == 0 ? 0xC0 + random() % 3 : 'a');
    tokens.push_back({.content = content, .id = id});
  }
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(random() % 3 == 0 ? 0xC0 + random() % 4 : 'a');
  std::string expected;
  size_t piece = 0;
  const auto end_piece = [&](size_t end) {
    if (piece < end) expected += "|" + text.substr(piece, end - piece);
  };
  for (size_t at = 0; at < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken& token : tokens) {
      const bool here = text.compare(at, token.content.size(), token.content) == 0;
      if (here && (longest == nullptr || token.content.size() > longest->content.size())) longest = &token;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    end_piece(at);
    expected += "<" + std::to_string(longest->id) + ">";
    piece = at += longest->content.size();
  }
  end_piece(text.size());
  EXPECT_EQ(split(tokens, text), expected);
}

}  // namespace
}  // namespace remat::tokenizers

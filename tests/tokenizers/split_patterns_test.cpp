#include "tokenizers/split_patterns.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace remat::tokenizers {
namespace {

using Words = std::vector<std::string>;

Words split(SplitPattern pattern, const std::string& text) {
  Words words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = match_end(pattern, text, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(SplitPatterns, Gpt2TakesTheSpaceBeforeAWord) {
  const auto gpt2 = [](const std::string& text) { return split(SplitPattern::kGpt2, text); };
  EXPECT_EQ(gpt2("Hello  world 12ab,é!?"), (Words{"Hello", " ", " world", " 12", "ab", ",", "é", "!?"}));
  EXPECT_EQ(gpt2("a \n b\t c  "), (Words{"a", " \n", " b", "\t", " c", "  "}));
  EXPECT_EQ(gpt2("a\u00A0b"), (Words{"a", "\u00A0", "b"}));
  EXPECT_EQ(gpt2("I'll he'd 'Re ''s '"), (Words{"I", "'ll", " he", "'d", " '", "Re", " ''", "s", " '"}));
  EXPECT_EQ(gpt2("x'sy'l"), (Words{"x", "'s", "y", "'", "l"}));
}

TEST(SplitPatterns, Llama3TakesThreeDigitsAndLineEnds) {
  const auto llama3 = [](const std::string& text) { return split(SplitPattern::kLlama3, text); };
  EXPECT_EQ(llama3("12345 (abc)\n\n x"), (Words{"123", "45", " (", "abc", ")\n\n", " x"}));
  EXPECT_EQ(llama3("a  \n \n  b"), (Words{"a", "  \n \n", " ", " b"}));
  EXPECT_EQ(llama3("I'LL it'ſx\tc"), (Words{"I", "'LL", " it", "'ſ", "x", "\tc"}));
  EXPECT_EQ(llama3("\nab ! \r"), (Words{"\n", "ab", " !", " \r"}));
  EXPECT_EQ(split(SplitPattern::kQwen2, "123a"), (Words{"1", "2", "3", "a"}));
}

TEST(SplitPatterns, Gpt4oBeginsAWordWithUpperCase) {
  const auto gpt4o = [](const std::string& text) { return split(SplitPattern::kGpt4o, text); };
  EXPECT_EQ(gpt4o("camelCase HTTPServer ABC"), (Words{"camel", "Case", " HTTPServer", " ABC"}));
  EXPECT_EQ(gpt4o("it's IT'S 'll"), (Words{"it's", " IT'S", " '", "ll"}));
  EXPECT_EQ(gpt4o("12345!\n/x"), (Words{"123", "45", "!\n/", "x"}));
  EXPECT_EQ(gpt4o("AB中CD中ÉF"), (Words{"AB中CD中É", "F"}));  // letters without case are in words of both
  EXPECT_EQ(gpt4o("\u0301A \u0301"), (Words{"\u0301", "A", " \u0301"}));
  const auto tekken = [](const std::string& text) { return split(SplitPattern::kTekken, text); };
  EXPECT_EQ(tekken("It's 12"), (Words{"It", "'s", " ", "1", "2"}));
}

TEST(SplitPatterns, TakeNoLongerThanTheTextIsLong) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kGpt4o}) {
    for (const char* unit : {" ", "\n", "a", "A", "Aa", "'", "1", " \n", "!\n"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      EXPECT_FALSE(split(pattern, text).empty());  // in quadratic time: hours
    }
  }
}

TEST(SplitPatterns, AreKnownByTheirExpressions) {
  EXPECT_EQ(find_split_pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
            SplitPattern::kGpt2);
  EXPECT_EQ(find_split_pattern(R"(\s+)"), std::nullopt);
}

}  // namespace
}  // namespace remat::tokenizers

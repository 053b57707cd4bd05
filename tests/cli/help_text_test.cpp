#include "cli/help_text.h"

#include <gtest/gtest.h>

namespace remat::cli {
namespace {

TEST(HelpText, WhatFollowsACutStandsUnderItsBeginning) {
  EXPECT_EQ(wrapped_help("  --all N     one two three four\n", 24),
            "  --all N     one two\n"
            "              three four\n");
  EXPECT_EQ(wrapped_help("one two three four\n", 9), "one two\nthree\nfour\n");
}

TEST(HelpText, ItemsOfAListAreToldFromWhatFollowsThem) {
  EXPECT_EQ(wrapped_help("  --all       any of\n              one: the first\n", 24),
            "  --all       any of\n"
            "              one: the\n"
            "                first\n");
}

TEST(HelpText, WhatFitsAndWhatCannotBeCutStays) {
  EXPECT_EQ(wrapped_help("\n  -h,--help   help\n\n", 20), "\n  -h,--help   help\n\n");
  EXPECT_EQ(wrapped_help("  --a  a_long_word_alone\n", 12), "  --a  a_long_word_alone\n");
  EXPECT_EQ(wrapped_help("", 20), "");
}

}  // namespace
}  // namespace remat::cli

#include "cli/printable.h"

#include <gtest/gtest.h>

namespace remat::cli {
namespace {

TEST(Printable, TextsStayAsTheyAre) {
  const std::string text = "a \"b\" 'c' é 中 😀 \u00A0 \\x1b";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, WhatATerminalObeysIsShown) {
  EXPECT_EQ(printable("x\x1b[31m\ny\t\x7F\r"), "x\\x1b[31m\\ny\\x09\\x7f\\x0d");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b2J"), "\\x9b2J") << "C1, as UTF-8";
  EXPECT_EQ(printable("\x9b"
                      "2J\xE4"),
            "\\x9b2J\\xe4")
      << "and as a byte";
}

}  // namespace
}  // namespace remat::cli

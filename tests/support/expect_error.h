// tests/support/expect_error.h -- EXPECT_ERROR(expression, text): the expression throws remat::Error whose message
// holds text.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include <remat/error.h>

namespace remat::test {

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

inline ::testing::AssertionResult holds(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the message is\n  " << message << "\nand does not hold\n  " << part;
}

}  // namespace remat::test

#define EXPECT_ERROR(expression, text) \
  EXPECT_TRUE(::remat::test::holds(::remat::test::error_of([&] { (void)(expression); }), text))

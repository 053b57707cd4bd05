#include "data/read_ahead.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "data/file_error.h"
#include "support/expect_error.h"

namespace remat::data {
namespace {

using Bytes = ReadAhead::Bytes;

Bytes twice(const ReadAhead::Which& which) {
  Bytes bytes;
  for (const int64_t i : which) bytes.push_back(static_cast<uint8_t>(2 * i));
  return bytes;
}

TEST(ReadAhead, GivesWhatIsAskedFor) {
  ReadAhead ahead(twice);
  EXPECT_EQ(ahead.get({1, 2}, {3}), (Bytes{2, 4}));
  EXPECT_EQ(ahead.get({3}, {4, 5}), (Bytes{6}));
  EXPECT_EQ(ahead.get({7}, {}), (Bytes{14})) << "not what was announced";
  EXPECT_EQ(ahead.get({4, 5}, {}), (Bytes{8, 10}));
}

TEST(ReadAhead, WhatComesNextIsReadOnceOnAnotherThread) {
  std::atomic<int> calls = 0, elsewhere = 0;
  const auto here = std::this_thread::get_id();
  ReadAhead ahead([&](const ReadAhead::Which& which) {
    ++calls;
    if (std::this_thread::get_id() != here) ++elsewhere;
    return twice(which);
  });
  for (int64_t i = 0; i < 20; ++i) ahead.get({i}, {i + 1});
  ahead.get({20}, {});
  EXPECT_EQ(calls, 21);
  EXPECT_EQ(elsewhere, 20);
}

TEST(ReadAhead, ErrorsComeWithWhatTheyAreAbout) {
  ReadAhead ahead([](const ReadAhead::Which& which) {
    if (which == ReadAhead::Which{2}) refuse_file("two", "is broken");
    return twice(which);
  });
  EXPECT_EQ(ahead.get({1}, {2}), (Bytes{2}));
  EXPECT_ERROR(ahead.get({2}, {3}), "'two' is broken");
  EXPECT_ERROR(ahead.get({2}, {3}), "'two' is broken");
  EXPECT_EQ(ahead.get({3}, {2}), (Bytes{6})) << "what nobody asks for breaks nothing";
}

}  // namespace
}  // namespace remat::data

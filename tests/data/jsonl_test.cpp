#include "data/jsonl.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::data {
namespace {

std::vector<std::string> read_jsonl(const std::string& contents) {
  JsonlReader reader("x.jsonl", contents, "write an object");
  std::vector<std::string> lines;
  for (nlohmann::json object; reader.next(object);) lines.push_back(std::to_string(reader.line()) + object.dump());
  return lines;
}

TEST(Jsonl, EachLineIsAnObject) {
  EXPECT_EQ(read_jsonl("{\"a\": 1}\n{\"b\": [2]}\n"), (std::vector<std::string>{"1{\"a\":1}", "2{\"b\":[2]}"}));
  EXPECT_EQ(read_jsonl("{\"a\": 1}\r\n{\"b\": 2}"), (std::vector<std::string>{"1{\"a\":1}", "2{\"b\":2}"}));
  EXPECT_TRUE(read_jsonl("").empty());
}

TEST(Jsonl, LinesOfWhiteSpaceAreSkippedAndCounted) {
  EXPECT_EQ(read_jsonl("\n  \t\r\n{\"a\": 1}\n\n"), (std::vector<std::string>{"3{\"a\":1}"}));
}

TEST(Jsonl, MistakesAreNamedWithTheirLine) {
  EXPECT_ERROR(read_jsonl("{}\n{\"a\": \n1}"), "[data] 'x.jsonl' line 2: the line is no JSON at byte ");
  EXPECT_ERROR(read_jsonl("{} {}"), "line 1: the line is no JSON at byte 4");
  EXPECT_ERROR(read_jsonl("{\"a\": 1, \"a\": 2}"), "line 1: the line has the name 'a' twice");
  EXPECT_ERROR(read_jsonl("[1]"), "line 1: the line is an array, not an object");
  EXPECT_ERROR(read_jsonl(std::string("{}\0", 3)), "line 1: the line has a zero byte, byte 3");
  EXPECT_ERROR(read_jsonl("{\"a\":" + std::string(100000, '[')), "is nested more than 64 deep");
}

}  // namespace
}  // namespace remat::data

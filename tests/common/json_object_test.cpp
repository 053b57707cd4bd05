#include "common/json_object.h"

#include <gtest/gtest.h>

namespace remat::common {
namespace {

/// The document, written again, or why it was refused.
std::string outcome(const std::string& text) {
  try {
    return read_json_object(text, /*most_nested=*/3, /*most_values=*/10).dump();
  } catch (const JsonProblem& problem) {
    return problem.text;
  }
}

TEST(JsonObjectFile, IsReadWhereItIsAnObject) {
  for (const auto* const text : {"{}", R"({"a":[1,-2,0.5,null,true],"b":{"c":["d"]}})"}) EXPECT_EQ(outcome(text), text);
}

TEST(JsonObjectFile, OtherTextsAreRefused) {
  EXPECT_EQ(outcome(""), "is no JSON at byte 1");
  EXPECT_EQ(outcome("{}x"), "is no JSON at byte 3");
  EXPECT_EQ(outcome(R"({"a":1e999})"), "is no JSON at byte 10");
  EXPECT_EQ(outcome("[1]"), "is an array, not an object");
  EXPECT_EQ(outcome("\"a\""), "is a string, not an object");
  EXPECT_EQ(outcome("null"), "is null, not an object");
  EXPECT_EQ(outcome(std::string("{}") + '\0' + "x"), "has a zero byte, byte 3");
}

TEST(JsonObjectFile, NoNameStandsTwiceInOneObject) {
  EXPECT_EQ(outcome(R"({"a":1,"b":2,"a":3})"), "has the name 'a' twice in one object");
  EXPECT_EQ(outcome(R"({"a":{"b":1},"b":{"a":1}})"), R"({"a":{"b":1},"b":{"a":1}})");
  std::string name(59, 'x');
  name += "\u00e9\u00e9";  // cut between characters
  EXPECT_EQ(outcome("{\"" + name + "\":1,\"" + name + "\":1}"),
            "has the name '" + std::string(59, 'x') + "...' twice in one object");
}

TEST(JsonObjectFile, HasNoMoreThanIsAllowed) {
  EXPECT_EQ(outcome(R"({"a":[[]]})"), R"({"a":[[]]})");
  EXPECT_EQ(outcome(R"({"a":[[[]]]})"), "is nested more than 3 deep");
  EXPECT_EQ(outcome(std::string(1'000'000, '[')), "is nested more than 3 deep");
  EXPECT_EQ(outcome(R"({"a":[1,2,3,4,5,6,7,8]})"), R"({"a":[1,2,3,4,5,6,7,8]})");
  EXPECT_EQ(outcome(R"({"a":[1,2,3,4,5,6,7,8,9]})"), "has more than 10 values");
}

}  // namespace
}  // namespace remat::common

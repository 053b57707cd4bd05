#include "util/json_object.h"

#include <gtest/gtest.h>

namespace remat {
namespace {

class Reader final : public JsonReader {
 public:
  Reader() : JsonReader(/*most_nested=*/3, /*most_values=*/10) {}

  void refuse_syntax(size_t byte, const nlohmann::json::exception& /*error*/) override {
    throw "syntax " + std::to_string(byte);
  }
  void refuse_zero_byte(size_t byte) override { throw "zero byte " + std::to_string(byte); }
  void refuse_name_twice(const std::string& name) override { throw "twice " + name; }
  void refuse_nesting() override { throw std::string("nesting"); }
  void refuse_count() override { throw std::string("count"); }
  void refuse_root(const nlohmann::json& root) override { throw "root " + root.dump(); }
};

std::string outcome(const std::string& text) {
  try {
    return Reader().read(text).dump();
  } catch (const std::string& refusal) {
    return refusal;
  }
}

TEST(JsonObject, ReadsObjects) {
  for (const auto* const text : {"{}", R"({"a":[1,-2,0.5,null,true],"b":{"c":["d"]}})"}) EXPECT_EQ(outcome(text), text);
}

TEST(JsonObject, RefusesOtherTexts) {
  EXPECT_EQ(outcome(""), "syntax 1");
  EXPECT_EQ(outcome("{}x"), "syntax 3");
  EXPECT_EQ(outcome("[1]"), "root [1]");
  EXPECT_EQ(outcome(std::string("{}") + '\0' + "x"), "zero byte 3");
}

TEST(JsonObject, RefusesNamesThatStandTwiceInOneObject) {
  EXPECT_EQ(outcome(R"({"a":1,"b":2,"a":3})"), "twice a");
  EXPECT_EQ(outcome(R"({"a":{"b":1},"b":{"a":1}})"), R"({"a":{"b":1},"b":{"a":1}})");
}

TEST(JsonObject, RefusesMoreThanItsReaderAllows) {
  EXPECT_EQ(outcome(R"({"a":[[]]})"), R"({"a":[[]]})");
  EXPECT_EQ(outcome(R"({"a":[[[]]]})"), "nesting");
  EXPECT_EQ(outcome(std::string(1'000'000, '[')), "nesting");
  EXPECT_EQ(outcome(R"({"a":[1,2,3,4,5,6,7,8]})"), R"({"a":[1,2,3,4,5,6,7,8]})");
  EXPECT_EQ(outcome(R"({"a":[1,2,3,4,5,6,7,8,9]})"), "count");
}

}  // namespace
}  // namespace remat

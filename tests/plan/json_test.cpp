// The JSON of graphs and plans as it is read: whatever is no sound graph and no plan ends as an Error.
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <remat/error.h>
#include <remat/graph.h>
#include <remat/plan.h>

#include "json_samples.h"

namespace remat::test {
namespace {

TEST(Json, RefusesWhatIsNoJson) {
  const std::string remedy = "; the text may be damaged or cut off, have it written again";
  EXPECT_EQ(graph_message(""), "[graph] no JSON at line 1, column 1 (byte 1 of 0)" + remedy);
  EXPECT_EQ(plan_message("{\n \"format\": \"remat-plan\",\n !"),
            "[plan] no JSON at line 3, column 2 (byte 29 of 29)" + remedy);
  EXPECT_EQ(graph_with("0.25", "1e400"),
            "[graph] a number too large for a double at line 16, column 42 (byte 656 of 1368)" + remedy);
  for (const char* text : {"graph", "{", "[1, 2", "{\"format\": \"remat-graph\"", "\"\xff\"", "nan", "'a'", "{,}",
                           "// comment\n{}", "\"open"}) {
    EXPECT_NE(graph_message(text).find("[graph] no JSON at line "), std::string::npos) << text;
    EXPECT_NE(plan_message(text).find("[plan] no JSON at line "), std::string::npos) << text;
  }
  for (const char* number : {"NaN", "Infinity", "-Infinity", "0x10", "+1", ".5", "01", "1_000"})
    EXPECT_NE(graph_with("0.25", number).find("[graph] no JSON at line 16"), std::string::npos) << number;
}

TEST(Json, RefusesTextBehindTheEnd) {
  EXPECT_NE(graph_message(to_json(sample_graph()) + "{}").find("no JSON"), std::string::npos);
  EXPECT_NE(plan_message(to_json(sample_plan()) + "x").find("no JSON"), std::string::npos);
  EXPECT_EQ(plan_message("{}" + std::string("\0garbage", 8)),
            "[plan] the document has a zero byte, byte 3 of 10" + kRemedy)
      << "nlohmann stops reading there";
  EXPECT_EQ(plan_from_json(to_json(sample_plan()) + " \n\t"), sample_plan());
}

TEST(Json, RefusesOtherFormatsAndVersions) {
  EXPECT_EQ(graph_message("[]"), "[graph] the document is an array, not an object" + kRemedy);
  EXPECT_EQ(plan_message("7"), "[plan] the document is 7, not an object" + kRemedy);
  EXPECT_EQ(graph_message("{}"), "[graph] format is missing" + kRemedy);
  EXPECT_EQ(graph_message(to_json(sample_plan())), "[graph] format is \"remat-plan\", not \"remat-graph\"" + kRemedy);
  EXPECT_EQ(plan_message(to_json(sample_graph())), "[plan] format is \"remat-graph\", not \"remat-plan\"" + kRemedy);
  EXPECT_EQ(plan_message(R"({"format": ["remat-plan"]})"), "[plan] format is an array, not \"remat-plan\"" + kRemedy);
  EXPECT_EQ(plan_message(R"({"format": "remat-plan"})"), "[plan] version is missing" + kRemedy);
  for (const char* version :
       {"0", "1", "2", "5", "3.0", "-1", "\"1\"", "18446744073709551617", "18446744073709551615", "null"}) {
    EXPECT_NE(graph_with("\"version\": 3", std::string("\"version\": ") + version)
                  .find(", and this remat reads versions 3 to 4; have it written by this remat"),
              std::string::npos)
        << version;
  }
  EXPECT_EQ(plan_message(R"({"format": "remat-plan", "version": 1, "other": []})"),
            "[plan] version is 1, and this remat reads versions 2 to 3; have it written by this remat")
      << "before it misses fields, which are those of another version";
}

TEST(Json, RefusesFieldsThatAreMissingUnknownOrTwice) {
  EXPECT_EQ(graph_with(" \"baseline_bytes\": 464,\n", ""), "[graph] baseline_bytes is missing" + kRemedy);
  EXPECT_EQ(graph_with(", \"droppable\": false", ""), "[graph] values[0].droppable is missing" + kRemedy);
  EXPECT_EQ(graph_with(", \"overwritten\": [3]", ""), "[graph] operators[2].overwritten is missing" + kRemedy);
  EXPECT_EQ(graph_with("[\"use\", 4, 64, 64]", "[\"use\", 4, 64]"),
            "[graph] events[7] has 3 elements, not 4" + kRemedy);
  EXPECT_EQ(graph_with("[\"use\", 4, 64, 64]", "[\"use\", 4, 64, 64, 0, 0]"),
            "[graph] events[7] has 6 elements, not 5" + kRemedy);
  EXPECT_EQ(graph_with("\"step_seconds\"", "\"x\": 0, \"step_seconds\""),
            "[graph] the document has the unknown field \"x\"" + kRemedy);
  EXPECT_EQ(graph_with("\"scratch_bytes\": 16", "\"scratch_bytes\": 16, \"" + std::string(50, 'y') + "\": 0"),
            "[graph] operators[0] has the unknown field a string of 50 bytes" + kRemedy);
  EXPECT_EQ(graph_with("\"bytes\": 400", "\"bytes\": 400, \"bytes\": 401"),
            "[graph] the document has the field \"bytes\" twice in one object" + kRemedy);
  EXPECT_EQ(plan_with(" \"planner\": \"test\",\n", ""), "[plan] planner is missing" + kRemedy);
  EXPECT_EQ(plan_with("  \"pack\": [2],\n", ""), "[plan] actions.pack is missing" + kRemedy);
  EXPECT_EQ(plan_with("\"pack\": [2]", "\"pack\": [2], \"values\": 1000000000000"),
            "[plan] actions has the unknown field \"values\"" + kRemedy);
}

TEST(Json, RefusesFieldsOfAnotherType) {
  EXPECT_EQ(graph_with("\"baseline_bytes\": 464", "\"baseline_bytes\": 464.0"),
            "[graph] baseline_bytes is 464.0, not an integer" + kRemedy);
  EXPECT_EQ(graph_with("\"step_seconds\": 0.5", "\"step_seconds\": \"0.5\""),
            "[graph] step_seconds is \"0.5\", not a number" + kRemedy);
  EXPECT_EQ(graph_with("\"step_seconds\": 0.5", "\"step_seconds\": null"),
            "[graph] step_seconds is null, not a number" + kRemedy);
  EXPECT_EQ(graph_with("\"droppable\": true", "\"droppable\": 1"),
            "[graph] values[2].droppable is 1, not true or false" + kRemedy);
  EXPECT_EQ(graph_with("\"aten::relu\"", "[]"), "[graph] operators[1].name is an array, not a string" + kRemedy);
  EXPECT_EQ(graph_with("\"inputs\": [0, 1]", "\"inputs\": 0"),
            "[graph] operators[0].inputs is 0, not an array" + kRemedy);
  EXPECT_EQ(graph_with("\"inputs\": [0, 1]", "\"inputs\": [0, true]"),
            "[graph] operators[0].inputs has true, not an integer" + kRemedy);
  EXPECT_EQ(graph_with("[\"idle\", 2, 0, 0]", "{}"), "[graph] events[1] is an object, not an array" + kRemedy);
  EXPECT_EQ(graph_with("[\"idle\", 2, 0, 0]", "[2, \"idle\", 0, 0]"),
            "[graph] events[1].kind is 2, not a string" + kRemedy);
  EXPECT_EQ(graph_with("{\"bytes\": 400,", "[], {\"bytes\": 400,"),
            "[graph] values[0] is an array, not an object" + kRemedy);
  EXPECT_EQ(graph_message(R"({"format": "remat-graph", "version": 3, "baseline_bytes": 0, "parameter_bytes": 0,
                              "gradient_bytes": 0, "step_seconds": 0,
                              "values": {}, "operators": [], "events": []})"),
            "[graph] values is an object, not an array" + kRemedy);
  EXPECT_EQ(plan_with("\"actions\": {\n", "\"actions\": [], \"x\": {\n"),
            "[plan] the document has the unknown field \"x\"" + kRemedy);
  EXPECT_EQ(plan_with("\"test\"", "{}"), "[plan] planner is an object, not a string" + kRemedy);
  EXPECT_EQ(plan_with("[1, 5]", "{\"1\": 5}"), "[plan] actions.recompute.1 is an object, not an array" + kRemedy);
}

TEST(Json, RefusesNumbersOutOfRange) {
  const std::string range = ", not between 0 and 9223372036854775807" + kRemedy;
  EXPECT_EQ(graph_with("464", "-1"), "[graph] baseline_bytes is -1" + range);
  EXPECT_EQ(graph_with("464", "9223372036854775808"), "[graph] baseline_bytes is 9223372036854775808" + range);
  EXPECT_EQ(graph_with("464", "18446744073709551616"),
            "[graph] baseline_bytes is 1.8446744073709552e+19, not an integer" + kRemedy);
  EXPECT_EQ(graph_with("\"packed_bytes\": 8", "\"packed_bytes\": -8"), "[graph] values[3].packed_bytes is -8" + range);
  EXPECT_EQ(graph_with("[\"idle\", 2, 0, 0]", "[\"idle\", 2, -5, 0]"), "[graph] events[1].rise is -5" + range);
  EXPECT_EQ(graph_with("[\"idle\", 2, 0, 0]", "[\"idle\", 2, 7, 0, -5]"), "[graph] events[1].reused is -5" + range);
  EXPECT_EQ(graph_with("[\"idle\", 2, 0, 0]", "[\"idle\", 2, 0, 18446744073709551615]"),
            "[graph] events[1].delta is 18446744073709551615, not between -9223372036854775808 and "
            "9223372036854775807" +
                kRemedy);
  EXPECT_EQ(graph_with("[\"idle\", 2, 0, 0]", "[\"idle\", 4294967298, 0, 0]"),
            "[graph] events[1].index is 4294967298, not between -1 and 2147483647" + kRemedy);
  EXPECT_EQ(graph_with("\"producer\": 0", "\"producer\": -2"),
            "[graph] values[2].producer is -2, not between -1 and 2147483647" + kRemedy);
  for (const char* index : {"-1", "2147483648", "9223372036854775808", "18446744073709551615"}) {
    EXPECT_EQ(graph_with("[0, 1]", std::string("[0, ") + index + "]"),
              std::string("[graph] operators[0].inputs has ") + index + ", not between 0 and 2147483647" + kRemedy);
  }
  EXPECT_EQ(graph_with("\"seconds\": 0.25", "\"seconds\": -0.25"),
            "[graph] operators[0].seconds is -0.25, not a time: it is negative" + kRemedy);
  EXPECT_EQ(plan_with("9223372036854775807", "9223372036854775808"),
            "[plan] budget_bytes is 9223372036854775808" + range);
  EXPECT_EQ(plan_with("9007199254740993", "-9007199254740993"),
            "[plan] predicted_peak_bytes is -9007199254740993" + range);
  EXPECT_EQ(plan_with("0.1", "-0.1"), "[plan] predicted_seconds is -0.1, not a time: it is negative" + kRemedy);
}

TEST(Json, RefusesUnknownKinds) {
  EXPECT_EQ(graph_with("[\"idle\", 2", "[\"Idle\", 2"),
            "[graph] events[1].kind is none of \"operator\", \"idle\", \"use\", \"free\", \"other\"" + kRemedy);
}

TEST(Json, RefusesFingerprintsThatAreNone) {
  for (const char* digits : {"", "fedcba987654321", "fedcba98765432100", "fedcba987654321g", "0xfedcba98765432",
                             "-edcba9876543210", " edcba9876543210"}) {
    EXPECT_EQ(plan_with("fedcba9876543210", digits), "[plan] graph_fingerprint is not 16 hexadecimal digits" + kRemedy);
  }
}

TEST(Json, RefusesActionsThatDoNotCountEveryValueOnce) {
  for (const char* time : {"0", "-1", "01", "65535", "99999999999999999999", "1.0", "", "later"}) {
    EXPECT_EQ(plan_with("\"1\": ", std::string("\"") + time + "\": "),
              std::string("[plan] actions.recompute has the list \"") + time +
                  "\"; lists there are named 1 to 65534, or each_time" + kRemedy);
  }
  EXPECT_EQ(plan_with("\"pack\": [2]", "\"pack\": [2], \"x\": 0"),
            "[plan] actions has the unknown field \"x\"" + kRemedy);
  EXPECT_EQ(plan_with("[1, 5]", "[1, 5, 1]"), "[plan] actions.recompute.1 has value 1 a second time" + kRemedy);
  EXPECT_EQ(plan_with("[0, 4]", "[0, 5]"), "[plan] actions.recompute.1 has value 5 a second time" + kRemedy);
  EXPECT_EQ(plan_with("[0, 4]", "[0]"),
            "[plan] actions.recompute.1 has value 5, but the lists together have 5 values, which are numbered from 0" +
                kRemedy);
  EXPECT_EQ(
      plan_with("[0, 4]", "[0, 2147483647]"),
      "[plan] actions.keep has value 2147483647, but the lists together have 6 values, which are numbered from 0" +
          kRemedy);
  EXPECT_EQ(plan_with("[0, 4]", "[0, 1000000000000]"),
            "[plan] actions.keep has 1000000000000, not between 0 and 2147483647" + kRemedy);
}

TEST(Json, RefusesUnsoundGraphs) {
  EXPECT_EQ(graph_with("\"results\": [3]", "\"results\": []"),
            "[graph] value 3 says that operator 1 makes it, but it is not among that operator's results; the text was "
            "changed or is of a faulty recording, record the step again");
}

TEST(Json, RefusesDeepNesting) {
  const std::string message = " the document is nested deeper than 16 levels" + kRemedy;
  std::string objects;
  for (int i = 0; i < 500'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(graph_message(std::string(2'000'000, '[')), "[graph]" + message);
  EXPECT_EQ(plan_message(objects), "[plan]" + message);
  EXPECT_EQ(plan_message(std::string(17, '[') + std::string(17, ']')), "[plan]" + message);
  EXPECT_EQ(plan_message(std::string(16, '[') + std::string(16, ']')),
            "[plan] the document is an array, not an object" + kRemedy);
}

/// Nothing but Error or a sound graph that comes back when it is written again.
void expect_error_or_graph(const std::string& text) {
  try {
    const Graph graph = graph_from_json(text);
    EXPECT_EQ(graph.problem(), "") << text;
    EXPECT_EQ(graph_from_json(to_json(graph)), graph) << text;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[graph] ", 0), 0U) << error.what();
  }
}
void expect_error_or_plan(const std::string& text) {
  try {
    const Plan plan = plan_from_json(text);
    EXPECT_EQ(plan_from_json(to_json(plan)), plan) << text;
    plan.problem(sample_graph());
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[plan] ", 0), 0U) << error.what();
  }
}

TEST(Json, RefusesTextsThatAreCutOff) {
  const std::string graph = to_json(sample_graph()), plan = to_json(sample_plan());
  for (size_t length = 0; length + 1 < graph.size(); ++length)
    EXPECT_THROW(graph_from_json(graph.substr(0, length)), Error) << length;
  for (size_t length = 0; length + 1 < plan.size(); ++length)
    EXPECT_THROW(plan_from_json(plan.substr(0, length)), Error) << length;
}

TEST(Json, DamagedTextsAreReadSoundOrRefused) {
  const std::string graph = to_json(sample_graph()), plan = to_json(sample_plan());
  const std::string likely = "0123456789-+.eE[]{},:\"\\ aflnrstu";
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed, cert-msc51-cpp): the same texts every time
  const auto damaged = [&](std::string text) {
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t place = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[place] = static_cast<char>(text[place] ^ (1U << random() % 8));
          break;
        case 1:
          text[place] = likely[random() % likely.size()];
          break;
        case 2:
          text.erase(place, 1 + random() % 8);
          break;
        default:
          text.insert(place, 1, likely[random() % likely.size()]);
      }
    }
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    expect_error_or_graph(damaged(graph));
    expect_error_or_plan(damaged(plan));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace remat::test

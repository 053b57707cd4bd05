// The JSON of graphs and plans: what comes back, and that whatever else is read ends as an Error.
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

#include "plan/sample_graph.h"

namespace remat {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

Plan sample_plan() {
  return {.planner = "test",
          .graph_fingerprint = 0xfedcba9876543210,  // no double holds it
          .budget_bytes = kMost,
          .predicted_peak_bytes = 9007199254740993,  // nor this
          .predicted_seconds = 0.1,
          .actions = {Action::kKeep, Action::kRecompute, Action::kPack, Action::kRecomputeEachTime, Action::kKeep,
                      Action::kRecompute}};
}

std::string with(std::string text, const std::string& old_part, const std::string& new_part) {
  const size_t place = text.find(old_part);
  EXPECT_NE(place, std::string::npos) << old_part << " is not in\n" << text;
  return place == std::string::npos ? text : text.replace(place, old_part.size(), new_part);
}

template <class Callable>
std::string message_of(Callable&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string graph_message(const std::string& text) {
  return message_of([&] { graph_from_json(text); });
}
std::string plan_message(const std::string& text) {
  return message_of([&] { plan_from_json(text); });
}

std::string graph_with(const std::string& old_part, const std::string& new_part) {
  return graph_message(with(to_json(sample_graph()), old_part, new_part));
}
std::string plan_with(const std::string& old_part, const std::string& new_part) {
  return plan_message(with(to_json(sample_plan()), old_part, new_part));
}

const std::string kRemedy = "; docs/formats.md says what belongs there";

// ---- what comes back ----

TEST(Json, GraphsComeBack) {
  for (const Graph& graph : {Graph(), sample_graph(), chain_graph(1), chain_graph(25'000)}) {
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
    EXPECT_EQ(graph_from_json(to_json(graph)).fingerprint(), graph.fingerprint());
  }
}

TEST(Json, PlansComeBack) {
  Plan large = sample_plan();
  constexpr Action kSome[] = {Action::kKeep, Action::kRecompute, Action::kRecomputeEachTime, Action::kPack};
  for (int i = 0; i < 50'000; ++i) large.actions.push_back(i % 11 == 0 ? Action::recompute(i + 1) : kSome[i % 7 % 4]);
  for (const Plan& plan : {Plan(), sample_plan(), large}) EXPECT_EQ(plan_from_json(to_json(plan)), plan);
}

TEST(Json, DoublesComeBackBitForBit) {
  for (const double seconds : {0.0, -0.0, 0.1, 1.0 / 3, 2.0, 1e11, 123456789.0, 5e-324, 2.2250738585072014e-308,
                               std::nextafter(1.0, 2.0), std::nextafter(1e-5, 0.0)}) {
    Graph graph = sample_graph();
    graph.operators[1].seconds = seconds;
    const double back = graph_from_json(to_json(graph)).operators[1].seconds;
    EXPECT_EQ(std::bit_cast<uint64_t>(back), std::bit_cast<uint64_t>(seconds)) << seconds;
  }
  Plan plan = sample_plan();
  plan.predicted_seconds = std::numeric_limits<double>::max();
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
}

TEST(Json, NamesComeBack) {
  for (const char* name : {"", "a \"quoted\" name", "back\\slash", "line\nbreak\t\x01", "r\xc3\xa9sum\xc3\xa9"}) {
    Graph graph = sample_graph();
    graph.operators[0].name = name;
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
    Plan plan = sample_plan();
    plan.planner = name;
    EXPECT_EQ(plan_from_json(to_json(plan)), plan);
  }
}

TEST(Json, GraphsReadWell) {
  Graph graph = sample_graph();
  graph.values.resize(2);
  graph.operators = {{"aten::relu_", 0.25, 1e-7, 0, {0, 1}, {1}, {}}};
  graph.events = {{GraphEvent::Kind::kOperator, 0, 64, -8}, {GraphEvent::Kind::kOther, -1, 0, 0}};
  EXPECT_EQ(to_json(graph), R"({
 "format": "remat-graph",
 "version": 3,
 "baseline_bytes": 464,
 "parameter_bytes": 400,
 "gradient_bytes": 8,
 "step_seconds": 0.5,
 "values": [
  {"bytes": 400, "producer": -1, "packed_bytes": 0, "droppable": false, "dropped": false},
  {"bytes": 64, "producer": -1, "packed_bytes": 0, "droppable": false, "dropped": false}
 ],
 "operators": [
  {"name": "aten::relu_", "seconds": 0.25, "replay_seconds": 1e-07, "scratch_bytes": 0, "inputs": [0, 1], "overwritten": [1], "results": []}
 ],
 "events": [
  ["operator", 0, 64, -8],
  ["other", -1, 0, 0]
 ]
}
)");
}

TEST(Json, PlansReadWell) {
  Plan plan = sample_plan();
  plan.actions.resize(30, Action::kKeep);
  plan.actions.push_back(Action::recompute(2));
  plan.actions.push_back(Action::recompute(10));
  EXPECT_EQ(to_json(plan), R"({
 "format": "remat-plan",
 "version": 2,
 "planner": "test",
 "graph_fingerprint": "fedcba9876543210",
 "budget_bytes": 9223372036854775807,
 "predicted_peak_bytes": 9007199254740993,
 "predicted_seconds": 0.1,
 "actions": {
  "recompute": {
   "1": [1, 5],
   "2": [30],
   "10": [31],
   "each_time": [3]
  },
  "pack": [2],
  "keep": [0, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
   24, 25, 26, 27, 28, 29]
 }
}
)");
}

TEST(Json, TheManualsExamplesAreWhatIsWritten) {
  const auto path = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs" / "formats.md";
  std::ifstream file(path);
  const std::string manual(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> examples;
  const std::string begin = "```json\n", end = "```";
  for (size_t place = manual.find(begin); place != std::string::npos; place = manual.find(begin, place)) {
    place += begin.size();
    examples.push_back(manual.substr(place, manual.find(end, place) - place));
  }
  ASSERT_EQ(examples.size(), 2U) << path;
  const Graph graph = graph_from_json(examples[0]);
  const Plan plan = plan_from_json(examples[1]);
  EXPECT_EQ(to_json(graph), examples[0]);
  EXPECT_EQ(to_json(plan), examples[1]);
  EXPECT_EQ(plan.problem(graph), "");
}

// ---- what is not written ----

TEST(Json, WritesNothingThatCouldNotBeReadAgain) {
  Graph graph = sample_graph();
  graph.operators[1].seconds = std::nan("");
  EXPECT_EQ(message_of([&] { to_json(graph); }),
            "[graph] operator 1 has seconds nan; a time is finite and not negative; only a sound graph can be written");
  graph = sample_graph();
  graph.operators[1].name = "\xff";
  EXPECT_EQ(message_of([&] { to_json(graph); }), "[graph] operators[1].name is not UTF-8" + kRemedy);

  const auto plan_problem = [](auto&& change) {
    Plan plan = sample_plan();
    change(plan);
    return message_of([&] { to_json(plan); });
  };
  const std::string sound = "; only a sound plan can be written";
  EXPECT_EQ(plan_problem([](Plan& p) { p.planner = "\xc3"; }), "[plan] planner is not UTF-8" + kRemedy);
  EXPECT_EQ(plan_problem([](Plan& p) { p.budget_bytes = -1; }), "[plan] budget_bytes is -1" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) { p.predicted_peak_bytes = -2; }), "[plan] predicted_peak_bytes is -2" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) { p.predicted_seconds = HUGE_VAL; }), "[plan] predicted_seconds is inf" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) { p.predicted_seconds = -1; }), "[plan] predicted_seconds is -1.000000" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) { p.actions[3] = {static_cast<Action::Kind>(9)}; }),
            "[plan] value 3 has the unknown action 9, held from 0 on" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) {
              p.actions[3] = {Action::Kind::kRecompute, 0};
            }),
            "[plan] value 3 has the unknown action 2, held from 0 on" + sound);
}

// ---- what is not read ----

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
       {"0", "1", "2", "3.0", "-1", "\"1\"", "18446744073709551617", "18446744073709551615", "null"}) {
    EXPECT_NE(graph_with("\"version\": 3", std::string("\"version\": ") + version)
                  .find(", and this remat reads version 3 alone; have it written by this remat"),
              std::string::npos)
        << version;
  }
  EXPECT_EQ(plan_message(R"({"format": "remat-plan", "version": 1, "other": []})"),
            "[plan] version is 1, and this remat reads version 2 alone; have it written by this remat")
      << "before it misses fields, which are those of another version";
}

TEST(Json, RefusesFieldsThatAreMissingUnknownOrTwice) {
  EXPECT_EQ(graph_with(" \"baseline_bytes\": 464,\n", ""), "[graph] baseline_bytes is missing" + kRemedy);
  EXPECT_EQ(graph_with(", \"droppable\": false", ""), "[graph] values[0].droppable is missing" + kRemedy);
  EXPECT_EQ(graph_with(", \"overwritten\": [3]", ""), "[graph] operators[2].overwritten is missing" + kRemedy);
  EXPECT_EQ(graph_with("[\"use\", 4, 64, 64]", "[\"use\", 4, 64]"),
            "[graph] events[7] has 3 elements, not 4" + kRemedy);
  EXPECT_EQ(graph_with("[\"use\", 4, 64, 64]", "[\"use\", 4, 64, 64, 0]"),
            "[graph] events[7] has 5 elements, not 4" + kRemedy);
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
}  // namespace remat

// The JSON of graphs and plans as it is written: it comes back, and what would not is not written.
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

// ---- what comes back ----

TEST(Json, GraphsComeBack) {
  Graph with_tier = sample_graph();
  with_tier.tier = Tier{.costs = {{1e-10, 2e-9}, {0, 0.1 / 3}}, .copy_seconds = 0.1 / 7, .bytes = 1 << 30};
  with_tier.tier->costs.in.copy = 1e-9 / 3;
  for (const Graph& graph : {Graph(), sample_graph(), chain_graph(1), chain_graph(25'000), with_tier}) {
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
    EXPECT_EQ(graph_from_json(to_json(graph)).fingerprint(), graph.fingerprint());
  }
}

TEST(Json, PlansComeBack) {
  Plan large = sample_plan();
  constexpr Action kSome[] = {Action::kKeep, Action::kRecompute, Action::kRecomputeEachTime, Action::kPack,
                              Action::kMove};
  for (int i = 0; i < 50'000; ++i) large.actions.push_back(i % 11 == 0 ? Action::recompute(i + 1) : kSome[i % 7 % 5]);
  large.forms[Form::kMoved] = {{1e-10, 2e-9}, {0, 1e-9 / 3}};
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
  plan.actions[6] = Action::kMove;
  EXPECT_EQ(to_json(plan), R"({
 "format": "remat-plan",
 "version": 3,
 "planner": "test",
 "graph_fingerprint": "fedcba9876543210",
 "budget_bytes": 9223372036854775807,
 "predicted_peak_bytes": 9007199254740993,
 "predicted_seconds": 0.1,
 "forms": {
  "packed": {"out_compute": 8e-11, "out_copy": 0.0, "in_compute": 5e-11, "in_copy": 0.0}
 },
 "actions": {
  "recompute": {
   "1": [1, 5],
   "2": [30],
   "10": [31],
   "each_time": [3]
  },
  "pack": [2],
  "move": [6],
  "keep": [0, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
   25, 26, 27, 28, 29]
 }
}
)");
}

TEST(Json, PlansOfTheVersionBeforeFormsAreRead) {
  const std::string text = to_json(sample_plan());
  const std::string older = with(with(with(text, "\"version\": 3", "\"version\": 2"), "  \"move\": [],\n", ""),
                                 " \"forms\": {\n  \"packed\": {\"out_compute\": 8e-11, \"out_copy\": 0.0, "
                                 "\"in_compute\": 5e-11, \"in_copy\": 0.0}\n },\n",
                                 "");
  EXPECT_EQ(plan_from_json(older), sample_plan());
  EXPECT_EQ(plan_message(with(text, "  \"move\": [],\n", "")), "[plan] actions.move is missing" + kRemedy);
  EXPECT_EQ(plan_message(with(older, "\"version\": 2", "\"version\": 3")), "[plan] forms is missing" + kRemedy);
  EXPECT_EQ(plan_message(with(text, "\"packed\": {", "\"tiled\": {")),
            "[plan] forms has the unknown field \"tiled\"" + kRemedy);
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
  EXPECT_EQ(plan_problem([](Plan& p) { p.predicted_seconds = -1; }), "[plan] predicted_seconds is -1" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) { p.actions[3] = {static_cast<Action::Kind>(9)}; }),
            "[plan] value 3 has the unknown action 9, held from 0 on, form 0" + sound);
  EXPECT_EQ(plan_problem([](Plan& p) {
              p.actions[3] = {Action::Kind::kRecompute, 0};
            }),
            "[plan] value 3 has the unknown action 2, held from 0 on, form 0" + sound);
}

}  // namespace
}  // namespace remat::test

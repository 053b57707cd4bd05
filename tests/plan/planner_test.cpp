#include <remat/planner.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "brute_force.h"
#include "plan/greedy.h"
#include "plan/simulate.h"
#include "random_graph.h"
#include "sample_graph.h"
#include "step_builder.h"

namespace remat::test {
namespace {

/// What must hold of each planner's plan for `budget`. Returns whether there is one.
bool check_plan(const Graph& graph, int64_t budget, std::string_view planner, PlannerOptions options = {}) {
  SCOPED_TRACE(std::string(planner) + " within " + std::to_string(budget));
  try {
    const Plan plan = make_plan(graph, budget, planner, options);
    EXPECT_EQ(plan.planner, planner);
    EXPECT_EQ(plan.problem(graph), "");
    EXPECT_LE(plan.predicted_peak_bytes, budget);
    const Prediction prediction = predict(graph, plan.actions);
    EXPECT_EQ(plan.predicted_peak_bytes, prediction.peak_bytes);
    EXPECT_EQ(plan.predicted_seconds, prediction.seconds);
    EXPECT_EQ(make_plan(graph, budget, planner, options), plan);
    const bool packs = std::count(plan.actions.begin(), plan.actions.end(), Action::kPack) > 0;
    EXPECT_FALSE(packs && !options.pack);
    return true;
  } catch (const BudgetError& error) {
    const int64_t smallest = error.smallest_known_bytes().value_or(0);
    EXPECT_GT(smallest, budget);
    EXPECT_LE(make_plan(graph, smallest, planner, options).predicted_peak_bytes, smallest);
    return false;
  }
}

TEST(EveryPlanner, KeepsToTheBudgetOrNamesOneThatWorks) {
  std::map<std::string_view, int> plans;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(5 + 7 * static_cast<int>(seed));
    const int64_t activation_peak = plain_peak(graph) - graph.baseline_bytes;
    for (const PlannerInfo& info : list_planners()) {
      if (info.name == "auto" && seed > 0) continue;  // it takes longer and has tests of its own
      for (int part = 0; part <= 10; part += 2) {
        const int64_t budget = graph.baseline_bytes + activation_peak * part / 10;
        plans[info.name] += check_plan(graph, budget, info.name, {.pack = part % 4 == 0}) ? 1 : 0;
      }
    }
  }
  // Below 100 % there are plans too.
  for (const auto planner : {"segments", "revolve", "rotor", "online"}) EXPECT_GT(plans[planner], 24) << planner;
}

TEST(EveryPlanner, IsNeverBetterThanTheOptimum) {
  std::map<std::string_view, int> plans;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(8);
    const BruteForce all(graph);
    if (all.choices() > BruteForce::kMostChoices) continue;
    for (const PlannerInfo& info : list_planners()) {
      if (info.name == "auto") continue;  // compared above
      EXPECT_FALSE(check_plan(graph, all.lowest_peak() - 1, info.name));
      for (int part = 0; part <= 4; ++part) {
        const int64_t budget = all.lowest_peak() + (plain_peak(graph) - all.lowest_peak()) * part / 4;
        if (!check_plan(graph, budget, info.name)) continue;
        ++plans[info.name];
        EXPECT_GE(make_plan(graph, budget, info.name).predicted_seconds, all.least_seconds(budget) - 1e-9)
            << info.name << " on graph " << seed;
      }
    }
  }
  EXPECT_EQ(plans.size(), list_planners().size() - 1);
}

TEST(EveryPlanner, KeepsEverythingWhereThereIsRoom) {
  for (const PlannerInfo& info : list_planners()) {
    if (info.name == "drop-all") continue;
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const Graph graph = RandomGraph(seed).make(30);
      EXPECT_EQ(make_plan(graph, plain_peak(graph), info.name).predicted_seconds, 0) << info.name;
    }
  }
}

TEST(EveryPlanner, CopesWithGraphsThatLeaveNothingToDo) {
  Graph empty;
  empty.baseline_bytes = 10;
  Graph single = chain_graph(1);
  Graph fixed = chain_graph(20), timeless = chain_graph(20), weightless = chain_graph(20);
  for (auto& value : fixed.values) value.droppable = false, value.packed_bytes = 0;
  for (auto& op : timeless.operators) op.seconds = op.replay_seconds = 0;
  for (auto& value : weightless.values) value.bytes = value.packed_bytes = 0;
  Graph useless = chain_graph(20);  // nothing is asked for
  std::erase_if(useless.events, [](const GraphEvent& event) { return event.kind == GraphEvent::Kind::kUse; });
  for (const Graph* graph : {&empty, &single, &fixed, &timeless, &weightless, &useless}) {
    ASSERT_EQ(graph->problem(), "");
    for (const PlannerInfo& info : list_planners()) {
      EXPECT_TRUE(check_plan(*graph, INT64_MAX, info.name));
      EXPECT_FALSE(check_plan(*graph, INT64_MIN, info.name));
      check_plan(*graph, plain_peak(*graph), info.name);
      check_plan(*graph, (graph->baseline_bytes + plain_peak(*graph)) / 2, info.name);
    }
  }
  for (const PlannerInfo& info : list_planners()) {
    EXPECT_EQ(make_plan(empty, 10, info.name).predicted_peak_bytes, 10);
    EXPECT_THROW(make_plan(empty, 9, info.name), BudgetError);
  }
}

TEST(EveryPlanner, IsDoneWithLargeGraphsInTime) {
  const Graph graph = chain_graph(25'000);
  const int64_t budget = plain_peak(graph) / 2;
  for (const PlannerInfo& info : list_planners()) {
    if (info.name == "auto" || info.name == "keep-all" || info.name == "drop-all") continue;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_LE(make_plan(graph, budget, info.name).predicted_peak_bytes, budget) << info.name;
    // Some take a second; the limit allows for sanitizers. What grows with the square would take minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << info.name;
  }
}

TEST(Planner, RefusesWithTheSmallestBudgetThatItKnows) {
  const Graph graph = RandomGraph(2).make(30);
  try {
    make_plan(graph, 1);
    FAIL();
  } catch (const BudgetError& error) {
    ASSERT_TRUE(error.smallest_known_bytes());
    EXPECT_LE(make_plan(graph, *error.smallest_known_bytes()).predicted_peak_bytes, *error.smallest_known_bytes());
    EXPECT_LE(error.lower_bound_bytes(), *error.smallest_known_bytes());
    EXPECT_NE(std::string(error.what()).find(std::to_string(*error.smallest_known_bytes())), std::string::npos);
  }
}

TEST(Planner, RefusesUnknownNamesAndBadGraphs) {
  Graph graph = sample_graph();
  const auto message = [&](std::string_view planner) {
    try {
      make_plan(graph, 1 << 20, planner);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("auto"), "");
  EXPECT_EQ(message("best"),
            "[plan] there is no planner \"best\"; there are auto, keep-all, drop-all, segments, articulation-memory, "
            "articulation-speed, selective, revolve, rotor, online");
  graph.values[0].bytes = -1;
  EXPECT_EQ(message("auto"), "[plan] the graph is not sound: value 0 has bytes -1; record it again");
}

TEST(Planner, PredictionsRefuseActionsThatDoNotSuitAndBadGraphs) {
  Graph graph = sample_graph();
  const auto message = [&](const std::vector<Action>& actions) {
    try {
      predict(graph, actions);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::vector<Action> actions(graph.values.size(), Action::kKeep);
  EXPECT_EQ(message(actions), "");
  EXPECT_NE(message({}).find("the plan has 0 actions"), std::string::npos) << message({});
  actions[0] = Action::kRecompute;  // a leaf
  EXPECT_NE(message(actions).find("value 0 is to be recomputed"), std::string::npos) << message(actions);
  actions[0] = Action::kKeep;
  graph.events.front().index = 1 << 30;
  EXPECT_NE(message(actions).find("the graph is not sound"), std::string::npos) << message(actions);
}

TEST(Planner, DescribesEachPlannerOnce) {
  std::map<std::string_view, int> names;
  for (const PlannerInfo& info : list_planners()) {
    EXPECT_EQ(++names[info.name], 1) << info.name;
    EXPECT_FALSE(info.description.empty());
  }
}

}  // namespace
}  // namespace remat::test

// The planner `auto`.
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
#include "golden_graph.h"
#include "plan/greedy.h"
#include "plan/simulate.h"
#include "random_graph.h"
#include "sample_graph.h"
#include "step_builder.h"

namespace remat::test {
namespace {

TEST(Auto, FindsTheOptimumOfSmallGraphs) {
  int optimal = 0, plans = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const Graph graph = RandomGraph(seed).make(8);
    const BruteForce all(graph);
    if (all.choices() > BruteForce::kMostChoices) continue;
    const int64_t top = plain_peak(graph);
    for (int part = 0; part <= 10; ++part) {
      const int64_t budget = all.lowest_peak() + (top - all.lowest_peak()) * part / 10;
      ++plans;
      Plan plan;
      ASSERT_NO_THROW(plan = make_plan(graph, budget)) << seed;
      EXPECT_LE(plan.predicted_peak_bytes, budget);
      EXPECT_TRUE(plan.is_valid(graph)) << plan.problem(graph);
      optimal += plan.predicted_seconds <= all.least_seconds(budget) + 1e-9 ? 1 : 0;
    }
    EXPECT_THROW(make_plan(graph, all.lowest_peak() - 1), BudgetError) << seed;
  }
  EXPECT_GT(plans, 300);
  EXPECT_EQ(optimal, plans);
}

// Steps of microcontrollers (a keyword spotter, ten equal layers) at budgets where a search ends in a slower plan.
TEST(Auto, FindsTheOptimumOfTightChains) {
  const auto seconds = [](const char* graph, int64_t budget) {
    return make_plan(golden_graph(graph), budget, "auto", {.pack = false}).predicted_seconds;
  };
  EXPECT_NEAR(seconds("dscnn", 220380), 22.8272, 1e-3);
  EXPECT_NEAR(seconds("dscnn", 236380), 22.8272, 1e-3);
  EXPECT_NEAR(seconds("ten_layers", 50264), 0.6603, 1e-3);
  EXPECT_NEAR(seconds("ten_layers", 49736), 0.8126, 1e-3);
  EXPECT_NEAR(seconds("ten_layers", 49608), 0.8126, 1e-3);
}

TEST(Auto, FindsTheOptimumBesideAPolicy) {
  int optimal = 0, plans = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies().make(8);
    const BruteForce all(graph);
    if (all.choices() > BruteForce::kMostChoices) continue;
    for (int part = 0; part <= 4; ++part) {
      const int64_t budget = all.lowest_peak() + (plain_peak(graph) - all.lowest_peak()) * part / 4;
      ++plans;
      Plan plan;
      ASSERT_NO_THROW(plan = make_plan(graph, budget)) << seed;
      EXPECT_GE(plan.predicted_seconds, all.least_seconds(budget) - 1e-9);
      optimal += plan.predicted_seconds <= all.least_seconds(budget) + 1e-9 ? 1 : 0;
    }
  }
  EXPECT_EQ(optimal, plans);
}

/// Layers of a recurrence, one after the other, each a number of steps long.
Graph recurrence(int layers, int steps) {
  StepBuilder step;
  std::vector<int32_t> inputs(static_cast<size_t>(steps), 0);
  for (int l = 0; l < layers; ++l) {
    int32_t hidden = 0, cell = 0;
    for (int32_t& input : inputs) {
      const int32_t product = step.lost(input == hidden ? std::vector{input} : std::vector{input, hidden}, 2e-3);
      const int32_t gates = step.saved({product}, 4000, 2e-4);
      cell = step.saved({gates, cell}, 1000, 2e-5);
      const int32_t squashed = step.saved({cell}, 1000, 1e-4);
      hidden = input = step.saved({gates, squashed}, 1000, 1e-5);
    }
  }
  return step.graph();
}

TEST(Auto, MoreBudgetIsNeverSlowerOnACurve) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Graph graph = RandomGraph(seed).make(40);
    const int64_t activation_peak = plain_peak(graph) - graph.baseline_bytes;
    std::vector<int64_t> budgets;
    for (int i = 50; i > 0; --i) budgets.push_back(graph.baseline_bytes + activation_peak * i / 50);
    const std::vector<Plan> plans = plan_curve(graph, budgets);
    ASSERT_GT(plans.size(), 5U);
    for (size_t i = 1; i < plans.size(); ++i) {
      EXPECT_LE(plans[i].predicted_peak_bytes, std::min(plans[i - 1].predicted_peak_bytes, plans[i].budget_bytes));
      EXPECT_GE(plans[i].predicted_seconds, plans[i - 1].predicted_seconds);
    }
  }
}

TEST(Auto, IsNoWorseThanAnyOtherPlanner) {
  int plans = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const Graph graph =
        seed < 4 ? RandomGraph(seed).with_policies(seed % 2 == 1).make(60) : recurrence(1, 4 * int(seed));
    const int64_t activation_peak = plain_peak(graph) - graph.baseline_bytes;
    for (const int percent : {75, 40, 20}) {
      const int64_t budget = graph.baseline_bytes + activation_peak * percent / 100;
      const auto seconds = [&](std::string_view planner) {
        try {
          return make_plan(graph, budget, planner).predicted_seconds;
        } catch (const BudgetError&) {
          return std::numeric_limits<double>::infinity();
        }
      };
      const double ours = seconds("auto");
      for (const PlannerInfo& other : list_planners()) {
        if (other.name == "auto") continue;
        EXPECT_LE(ours, seconds(other.name) * (1 + 1e-12))
            << other.name << ", graph " << seed << ", " << percent << " %";
      }
      plans += std::isfinite(ours) ? 1 : 0;
    }
  }
  EXPECT_GT(plans, 10);
}

/// The smallest budget that a planner finds a plan for.
int64_t smallest_budget(const Graph& graph, std::string_view planner) {
  try {
    return make_plan(graph, floor_of(graph).peak_bytes, planner).predicted_peak_bytes;
  } catch (const BudgetError& error) {
    return error.smallest_known_bytes().value_or(INT64_MAX);
  }
}

/// Operators in a row whose results are all saved, of sizes that differ: to drop all that can be dropped takes as much
/// as to keep it, since the first replay brings it back.
Graph uneven_chain(int length) {
  using Kind = GraphEvent::Kind;
  Graph graph;
  graph.step_seconds = 1;
  graph.values = {{100, -1}};
  for (int32_t o = 0; o < length; ++o) {
    const int64_t bytes = 200 + (o * 7919) % 1800;
    graph.values.push_back({bytes, o, 0, true});
    graph.operators.push_back({"aten::op", 0.001, 0.001 * (1 + o % 5), 0, {o}, {}, {o + 1}});
    graph.events.push_back({Kind::kOperator, o, bytes, bytes});
    graph.events.push_back({Kind::kIdle, o + 1, 0, 0});
  }
  for (int32_t v = length; v > 0; --v) {
    graph.events.push_back({Kind::kUse, v, graph.values[static_cast<size_t>(v)].bytes, 0});
    graph.events.push_back({Kind::kFree, v, 0, 0});
  }
  return graph;
}

TEST(Auto, ReachesAsLowAsAnyOtherPlanner) {
  for (const int length : {12, 40, 200}) {
    const Graph graph = uneven_chain(length);
    const int64_t lowest = smallest_budget(graph, "auto");
    for (const auto other : {"segments", "revolve", "rotor", "online"}) {
      EXPECT_LE(lowest, smallest_budget(graph, other)) << other << ", " << length << " operators";
    }
  }
  const Graph many_steps = recurrence(1, 200);
  planners::Actions again;
  for (const GraphValue& v : many_steps.values)
    again.push_back(v.droppable ? Action::kRecomputeEachTime : Action::kKeep);
  EXPECT_LE(smallest_budget(many_steps, "auto"), Simulator(many_steps).run(again).peak_bytes);
}

TEST(Auto, KeepsUpWithRevolveOnRecurrences) {
  const Graph graph = recurrence(2, 96);
  const int64_t top = plain_peak(graph);
  for (const int percent : {32, 20, 12}) {  // few of the plans that revolve makes fit the last
    const int64_t budget = top * percent / 100;
    const double revolve = make_plan(graph, budget, "revolve").predicted_seconds;
    EXPECT_LE(make_plan(graph, budget).predicted_seconds, 1.05 * revolve) << percent << " %";
  }
}

TEST(Auto, GivesTheSamePlanByteForByte) {
  const Graph graph = RandomGraph(3).make(60);
  const int64_t budget = plain_peak(graph) * 7 / 10;
  const std::string first = to_json(make_plan(graph, budget));
  EXPECT_EQ(to_json(make_plan(graph, budget)), first);
  EXPECT_EQ(to_json(make_plan(graph_from_json(to_json(graph)), budget)), first);
}

TEST(Auto, CountsWhatIsGoneWhenItIsNeeded) {
  // Two results that cost a pass over a product's. One product is alive until backward needs the pass again, the other
  // is freed in the forward pass, so that what looks as cheap costs 100 times as much.
  using Kind = GraphEvent::Kind;
  Graph graph;
  graph.step_seconds = 1;
  graph.values = {{100, -1}};
  const auto run = [&](int32_t input, double seconds, bool droppable) {
    const auto index = static_cast<int32_t>(graph.operators.size());
    const auto made = static_cast<int32_t>(graph.values.size());
    graph.values.push_back({100, index, 0, droppable});
    graph.operators.push_back({"aten::op", seconds, seconds, 0, {input}, {}, {made}});
    graph.events.push_back({Kind::kOperator, index, 100, 100});
    return made;
  };
  const int32_t freed_product = run(0, 0.1, false);
  const int32_t dear = run(freed_product, 0.001, true);
  graph.events.push_back({Kind::kIdle, dear, 0, 0});
  graph.events.push_back({Kind::kIdle, freed_product, 0, 0});
  graph.events.push_back({Kind::kFree, freed_product, 0, 0});
  const int32_t held_product = run(0, 0.1, false);
  const int32_t cheap = run(held_product, 0.001, true);
  graph.events.push_back({Kind::kIdle, held_product, 0, 0});
  graph.events.push_back({Kind::kIdle, cheap, 0, 0});
  graph.events.push_back({Kind::kOther, -1, 150, 0});  // the peak, when all values are idle
  for (const int32_t v : {cheap, held_product, dear}) {
    graph.events.push_back({Kind::kUse, v, 0, 0});
    graph.events.push_back({Kind::kFree, v, 0, 0});
  }
  ASSERT_EQ(graph.problem(), "");
  Simulator simulator(graph);
  planners::Actions actions(graph.values.size(), Action::kKeep);
  planners::Greedy(graph, simulator, {}).descend(actions, plain_peak(graph) - 100);
  EXPECT_EQ(actions[static_cast<size_t>(cheap)], Action::kRecompute);
  EXPECT_EQ(actions[static_cast<size_t>(dear)], Action::kKeep);
}

TEST(Auto, PlansOfACurveAreOfEachBudget) {
  const Graph graph = RandomGraph(3).make(40);
  const int64_t activation_peak = plain_peak(graph) - graph.baseline_bytes;
  std::vector<int64_t> budgets;
  for (const int share : {100, 80, 60, 0}) budgets.push_back(graph.baseline_bytes + activation_peak * share / 100);
  const std::vector<Plan> plans = plan_curve(graph, budgets);
  ASSERT_EQ(plans.size(), 4u) << "nothing fits the last budget; the lowest peak is there instead";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plans[i].budget_bytes, budgets[i]);
    EXPECT_GE(1.05 * plans[i].predicted_seconds, make_plan(graph, budgets[i]).predicted_seconds);
  }
  EXPECT_EQ(plans[3].budget_bytes, plans[3].predicted_peak_bytes);
  EXPECT_THROW(make_plan(graph, plans[3].budget_bytes - 1), BudgetError);
}

TEST(Auto, RefinedPlansAreFasterOrTheSame) {
  int faster = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Graph graph = RandomGraph(seed).make(60);
    const int64_t lowest = floor_of(graph).peak_bytes;
    const int64_t budget = lowest + (plain_peak(graph) - lowest) * 2 / 3;
    try {
      const Plan plan = make_plan(graph, budget);
      const Plan refined = make_plan(graph, budget, "auto", {.refine = true});
      EXPECT_LE(refined.predicted_peak_bytes, budget);
      EXPECT_LE(refined.predicted_seconds, plan.predicted_seconds);
      EXPECT_EQ(refined, make_plan(graph, budget, "auto", {.refine = true}));
      faster += refined.predicted_seconds < plan.predicted_seconds ? 1 : 0;
    } catch (const BudgetError&) {
    }
  }
  EXPECT_GT(faster, 0);
}

/// What a U-Net's skip connections do: the values of each level are read again, in reverse order, on the way back up.
Graph skip_connections(int levels, int operators_each) {
  StepBuilder step;
  std::vector<int32_t> skipped;
  int32_t last = 0;
  int64_t bytes = 1 << 20;
  for (int l = 0; l < levels; ++l, bytes /= 2) {
    for (int o = 0; o < operators_each; ++o) last = step.saved({last}, bytes);
    skipped.push_back(last);
  }
  last = step.saved({last}, bytes);
  for (; !skipped.empty(); skipped.pop_back()) {
    bytes *= 2;
    last = step.saved({last, skipped.back()}, bytes);
    for (int o = 1; o < operators_each; ++o) last = step.saved({last}, bytes);
  }
  return step.graph();
}

TEST(Auto, RefinesMostWhereBudgetsAreLow) {
  const Graph graph = skip_connections(4, 8);
  const int64_t top = plain_peak(graph), lowest = smallest_budget(graph, "auto");
  double known = 0, refined = 0;
  for (const int percent : {3, 6}) {
    const int64_t budget = lowest + top * percent / 100;
    known += make_plan(graph, budget).predicted_seconds;
    refined += make_plan(graph, budget, "auto", {.refine = true}).predicted_seconds;
  }
  EXPECT_LT(refined, known);
  EXPECT_LE(refined, 241);  // the fastest that are known take 102 and 69 seconds
}

TEST(Auto, PacksOnlyWhereAllowed) {
  Graph graph = chain_graph(30);
  for (auto& op : graph.operators) op.replay_seconds = 1e-3;
  const int64_t budget = plain_peak(graph) * 98 / 100;
  const auto packs = [](const Plan& plan) {
    return std::count(plan.actions.begin(), plan.actions.end(), Action::kPack);
  };
  EXPECT_GT(packs(make_plan(graph, budget)), 0);
  EXPECT_EQ(packs(make_plan(graph, budget, "auto", {.pack = false})), 0);
}

TEST(Auto, KeepsEverythingWhereThereIsRoom) {
  const Graph graph = RandomGraph(1).make(30);
  const Plan plan = make_plan(graph, plain_peak(graph));
  EXPECT_EQ(plan.actions, std::vector<Action>(graph.values.size(), Action::kKeep));
  EXPECT_EQ(plan.predicted_seconds, 0);
  EXPECT_EQ(plan.predicted_peak_bytes, plain_peak(graph));
}

}  // namespace
}  // namespace remat::test

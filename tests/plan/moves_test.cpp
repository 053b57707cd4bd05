#include "plan/moves.h"

#include <gtest/gtest.h>
#include <remat/error.h>
#include <remat/planner.h>

#include "plan/simulate.h"
#include "random_graph.h"
#include "step_builder.h"
#include "support/actions.h"

namespace remat::test {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::vector<Action> moves_of(const Graph& graph, const std::vector<bool>& moved) {
  std::vector<Action> actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < moved.size(); ++v) {
    if (moved[v]) actions[v] = Action::kMove;
  }
  return actions;
}

TEST(Moves, TheGraphBesideThemHasTheSamePeak) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(3 + static_cast<int>(seed % 40));
    // What a policy drops is replayed, from moved values too: of that the graph beside the moves knows nothing.
    for (GraphValue& value : graph.values) value.dropped = false;
    graph.tier = Tier{.costs = {}, .bytes = 1 << 20};
    std::vector<bool> moved(graph.values.size(), false);
    for (size_t v = 0; v < moved.size(); ++v) moved[v] = graph.values[v].droppable && random() % 2 == 0;
    const Graph rest = planners::graph_beside_moves(graph, moved);
    ASSERT_FALSE(rest.tier);
    const Simulation whole = Simulator(graph).run(moves_of(graph, moved), /*limit=*/0);
    const Simulation beside = Simulator(rest).run(std::vector<Action>(rest.values.size(), Action::kKeep));
    ASSERT_EQ(beside.peak_bytes, whole.peak_bytes) << seed;
    EXPECT_EQ(beside.replays, 0);
  }
}

/// Twenty products of 1 MiB, each of which takes `seconds` to make.
Graph dear_chain(double seconds) { return plain_chain(std::vector<std::pair<int64_t, double>>(20, {kMiB, seconds})); }

/// A tier that takes `seconds` for each of those, each way.
Tier tier_of(double seconds) {
  const double per_byte = seconds / double(kMiB);
  return {.costs = {{per_byte / 100, per_byte}, {per_byte / 100, per_byte}}, .bytes = 1 << 30};
}

TEST(Moves, AreMadeWhereRecomputingIsDearer) {
  Graph graph = dear_chain(0.01);
  const int64_t budget = graph.baseline_bytes + (graph.plain_peak_bytes() - graph.baseline_bytes) / 2;
  const double without = make_plan(graph, budget).predicted_seconds;
  graph.tier = tier_of(0.005);
  const Plan plan = make_plan(graph, budget);
  EXPECT_EQ(plan.problem(graph), "");
  EXPECT_LE(plan.predicted_peak_bytes, budget);
  EXPECT_GT(std::ranges::count(plan.actions, Action::kMove), 5);
  EXPECT_LT(plan.predicted_seconds, without / 10) << "the copies run beside the computation";
  EXPECT_EQ(plan.forms.at(Form::kMoved), graph.tier->costs);
  EXPECT_EQ(make_plan(graph, budget, "auto", {.move = false}).predicted_seconds, without);
  graph.tier = tier_of(10);
  EXPECT_EQ(make_plan(graph, budget).predicted_seconds, without) << "a tier so slow serves nobody";
}

TEST(Moves, FitTheTier) {
  Graph graph = dear_chain(0.01);
  const int64_t budget = graph.baseline_bytes + (graph.plain_peak_bytes() - graph.baseline_bytes) / 2;
  graph.tier = tier_of(0.001);
  graph.tier->bytes = 5 * kMiB;
  const Plan plan = make_plan(graph, budget);
  const Simulation run = Simulator(graph).run(plan.actions);
  EXPECT_LE(run.tier_bytes, 5 * kMiB);
  EXPECT_GT(run.tier_bytes, 0);
}

TEST(Moves, NoPlanIsSlowerThanRecomputingAlone) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(30);
    for (GraphValue& value : graph.values) {
      value.bytes *= 1000;  // so that they are worth moving
      value.packed_bytes *= 1000;
    }
    for (GraphEvent& event : graph.events) {
      event.rise *= 1000;
      event.delta *= 1000;
      event.reused *= 1000;
    }
    graph.baseline_bytes *= 1000;
    ASSERT_EQ(graph.problem(), "");
    for (const int percent : {80, 50, 30}) {
      const int64_t budget = graph.baseline_bytes + (graph.plain_peak_bytes() - graph.baseline_bytes) * percent / 100;
      graph.tier.reset();
      std::optional<Plan> alone;
      try {
        alone = make_plan(graph, budget);
      } catch (const BudgetError&) {
      }
      graph.tier = Tier{.costs = {{1e-11, 1e-9}, {1e-11, 1e-9}}, .bytes = 1 << 30};
      try {
        const Plan joint = make_plan(graph, budget);
        EXPECT_EQ(joint.problem(graph), "");
        EXPECT_LE(joint.predicted_peak_bytes, budget);
        if (alone) {
          EXPECT_LE(joint.predicted_seconds, alone->predicted_seconds) << seed << " at " << percent;
        }
        EXPECT_GE(joint.predicted_seconds * 1.000001, seconds_bound(graph, budget)) << seed << " at " << percent;
      } catch (const BudgetError&) {
        EXPECT_FALSE(alone) << seed << " at " << percent << ": " << alone->predicted_seconds;
      }
    }
  }
}

TEST(Moves, TheDearestPerByteComeFirstAndTheSmallestNever) {
  StepBuilder step;
  const int32_t cheap = step.saved({0}, 4 * kMiB, 0.001);
  const int32_t dear = step.saved({cheap}, kMiB, 1);
  step.saved({dear}, 100, 1);
  EXPECT_EQ(planners::worth_moving(step.graph()), (std::vector<int32_t>{dear, cheap}));
}

}  // namespace
}  // namespace remat::test

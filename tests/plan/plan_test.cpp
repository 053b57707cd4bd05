#include <remat/plan.h>

#include <gtest/gtest.h>

#include "plan/sample_graph.h"

namespace remat {
namespace {

Plan sample_plan() {
  return {.planner = "test",
          .graph_fingerprint = sample_graph().fingerprint(),
          .budget_bytes = 600,
          .predicted_peak_bytes = 592,
          .predicted_seconds = 0.25,
          .actions = {Action::kKeep, Action::kKeep, Action::kRecompute, Action::kPack, Action::kRecomputeEachTime}};
}

TEST(Plan, FitsItsGraph) {
  EXPECT_EQ(sample_plan().problem(sample_graph()), "");
  EXPECT_TRUE(sample_plan().is_valid(sample_graph()));
  Plan empty;
  empty.graph_fingerprint = Graph().fingerprint();
  EXPECT_EQ(empty.problem(Graph()), "");
}

TEST(Plan, RefusesAnotherGraph) {
  Plan plan = sample_plan();
  plan.graph_fingerprint = 0xab;
  EXPECT_EQ(plan.problem(Graph()),
            "the plan is for the graph with fingerprint 00000000000000ab, this graph has 238275bc38fcbe91");
  EXPECT_FALSE(plan.is_valid(sample_graph()));
}

TEST(Plan, RefusesAnotherNumberOfValues) {
  Plan plan = sample_plan();
  plan.actions.pop_back();
  EXPECT_EQ(plan.problem(sample_graph()), "the plan has 4 actions, the graph has 5 values");
  plan.actions.resize(6);
  EXPECT_EQ(plan.problem(sample_graph()), "the plan has 6 actions, the graph has 5 values");
}

TEST(Plan, RefusesWhatCannotBeDoneToAValue) {
  const auto problem = [](size_t value, Action action) {
    Plan plan = sample_plan();
    plan.actions[value] = action;
    return plan.problem(sample_graph());
  };
  EXPECT_EQ(problem(1, Action::kRecompute), "value 1 is to be recomputed, but the graph says that it is not droppable");
  EXPECT_EQ(problem(3, Action::kRecomputeEachTime),
            "value 3 is to be recomputed, but the graph says that it is not droppable");
  EXPECT_EQ(problem(2, Action::kPack), "value 2 is to be packed, but the graph gives it packed_bytes 0");
  EXPECT_EQ(problem(0, {static_cast<Action::Kind>(3)}), "value 0 has the unknown action 3");
  EXPECT_EQ(problem(2, {Action::Kind::kRecompute, 0}),
            "value 2 is held from its recompute 0 on; of values to be recomputed that is 1 or more, of others 0");
  EXPECT_EQ(problem(0, {Action::Kind::kKeep, 1}),
            "value 0 is held from its recompute 1 on; of values to be recomputed that is 1 or more, of others 0");
  EXPECT_EQ(problem(3, Action::kKeep), "");
  EXPECT_EQ(problem(4, Action::kPack), "");
  EXPECT_EQ(problem(4, Action::kMove), "value 4 is to be moved, but the graph has no tier to move it to");
  EXPECT_EQ(problem(4, {Action::Kind::kKeep, 0, Form::kMoved}),
            "value 4 has the form 1; of values to be held that is 0 or 1, of others 0");
}

TEST(Plan, MaySayOfWhatAPolicyDropsOnlyWhenItIsHeldAgain) {
  Graph graph = sample_graph();
  std::swap(graph.values[2].droppable, graph.values[2].dropped);
  ASSERT_EQ(graph.problem(), "");
  Plan plan{.planner = "mine",
            .graph_fingerprint = graph.fingerprint(),
            .actions = std::vector<Action>(graph.values.size(), Action::kKeep)};
  EXPECT_EQ(plan.problem(graph), "");
  plan.actions[2] = Action::kRecomputeEachTime;
  EXPECT_EQ(plan.problem(graph), "");
  plan.actions[2] = Action::recompute(2);
  EXPECT_EQ(plan.problem(graph), "");
  plan.actions[2] = Action::kPack;
  EXPECT_EQ(plan.problem(graph), "value 2 is to be packed, but the graph gives it packed_bytes 0");
}

}  // namespace
}  // namespace remat

#include "plan/incremental.h"

#include <cmath>

#include <gtest/gtest.h>

#include <remat/support/mix.h>
#include "bench/generated_graphs.h"
#include "plan/simulate.h"
#include "random_graph.h"

namespace remat::test {
namespace {

/// Any action that a plan may have.
Action random_action(const GraphValue& value, support::SplitMix& random) {
  const uint64_t draw = random.below(6);
  if (draw < 2) return Action::kKeep;
  if (draw == 2 && value.droppable && value.packed_bytes > 0) return Action::kPack;
  if (draw == 3) return Action::kRecomputeEachTime;
  return Action::recompute(static_cast<int64_t>(1 + random.below(3)));
}

/// Changes a few actions at a time, accepts some of the changes, and compares each step with the Simulator's.
void expect_same_steps(const Graph& graph, int moves, const std::string& name) {
  std::vector<int32_t> choices;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].returns()) choices.push_back(static_cast<int32_t>(v));
  }
  ASSERT_FALSE(choices.empty()) << name;
  support::SplitMix random(graph.values.size());
  Simulator whole(graph);
  IncrementalSimulator incremental(graph);
  int accepted = 0;
  for (int move = 0; move < moves; ++move) {
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      const int32_t v = choices[random.below(choices.size())];
      incremental.change(v, random_action(graph.values[static_cast<size_t>(v)], random));
    }
    const Simulation expected = whole.run(incremental.actions());
    const Simulation run = incremental.run();
    ASSERT_EQ(run.peak_bytes, expected.peak_bytes) << name << ", move " << move;
    ASSERT_EQ(run.peak_event, expected.peak_event) << name << ", move " << move;
    ASSERT_EQ(run.replays, expected.replays) << name << ", move " << move;
    ASSERT_NEAR(run.seconds, expected.seconds, 1e-9 * (1 + expected.seconds)) << name << ", move " << move;
    if (random.below(2) == 0) {
      incremental.accept();
      ++accepted;
      ASSERT_EQ(incremental.in_force().peak_bytes, expected.peak_bytes);
    } else {
      incremental.reject();
      ASSERT_EQ(incremental.in_force().peak_bytes, whole.run(incremental.actions()).peak_bytes) << name;
    }
  }
  EXPECT_GT(accepted, moves / 4);
}

TEST(IncrementalSimulator, SaysWhatTheSimulatorSaysOfRandomGraphs) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(static_cast<int>(20 + 4 * seed));
    expect_same_steps(graph, 60, "random graph " + std::to_string(seed));
  }
}

TEST(IncrementalSimulator, SaysWhatTheSimulatorSaysOfEveryKindOfNetwork) {
  for (const std::string_view kind : bench::graph_kinds()) {
    expect_same_steps(bench::generate_graph(kind, 400, 3), 100, std::string(kind));
  }
}

TEST(IncrementalSimulator, BeginsAnewWithOtherActions) {
  const Graph graph = RandomGraph(5).make(60);
  std::vector<Action> actions;
  for (const GraphValue& value : graph.values) {
    actions.push_back(value.droppable ? Action::kRecompute : Action::kKeep);
  }
  IncrementalSimulator incremental(graph);
  const Simulation expected = Simulator(graph).run(actions);
  incremental.restart(actions, expected.peak_bytes);
  EXPECT_EQ(incremental.in_force().peak_bytes, expected.peak_bytes);
  EXPECT_EQ(incremental.in_force().replays, expected.replays);
  EXPECT_EQ(incremental.in_force().excess, 0);
  incremental.restart(actions, expected.peak_bytes - 10);
  EXPECT_GE(incremental.in_force().excess, 10);
  EXPECT_EQ(incremental.actions(), actions);
}

TEST(IncrementalSimulator, StopsAfterSoManyReplays) {
  const Graph graph = RandomGraph(5).make(60);
  IncrementalSimulator incremental(graph);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].droppable) incremental.change(static_cast<int32_t>(v), Action::kRecomputeEachTime);
  }
  EXPECT_FALSE(incremental.run().stopped);
  EXPECT_TRUE(incremental.run(3).stopped);
  incremental.reject();
  EXPECT_EQ(incremental.run().replays, 0);
}

TEST(IncrementalSimulator, TakesTimeByWhatChanges) {
  const Graph graph = bench::generate_graph("transformer", 20'000, 1);
  IncrementalSimulator incremental(graph);
  const int64_t begin = incremental.work();
  int32_t last = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].droppable) last = static_cast<int32_t>(v);
  }
  incremental.change(last, Action::kRecompute);
  incremental.run();
  EXPECT_LT(incremental.work() - begin, begin / 50);  // `begin`: a whole step
}

}  // namespace
}  // namespace remat::test

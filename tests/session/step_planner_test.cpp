// Sessions whose steps follow plans.
#include "session/step_planner.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <unistd.h>

#include <remat/planner.h>

#include "planned_loop.h"
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// One operator that makes a value of 64 bytes.
Graph one_operator() {
  Graph graph;
  graph.values.push_back({.bytes = 64, .producer = 0});
  graph.operators.emplace_back().name = "aten::op";
  graph.operators[0].results = {0};
  graph.events.push_back({GraphEvent::Kind::kOperator, 0, 64, 64});
  return graph;
}

/// Six operators one after another, whose results backward uses; each takes a second.
Graph chain(int64_t bytes) {
  Graph graph;
  for (int32_t v = 0; v < 6; ++v) {
    graph.values.push_back({.bytes = bytes, .producer = v, .droppable = true});
    GraphOperator& op = graph.operators.emplace_back();
    op.name = "aten::op";
    op.seconds = op.replay_seconds = 1;
    if (v > 0) op.inputs = {v - 1};
    op.results = {v};
    graph.events.push_back({GraphEvent::Kind::kOther, -1, bytes, bytes});
    graph.events.push_back({GraphEvent::Kind::kOperator, v, 0, 0});
    graph.events.push_back({GraphEvent::Kind::kIdle, v, 0, 0});
  }
  for (int32_t v = 6; v-- > 0;) {
    graph.events.push_back({GraphEvent::Kind::kUse, v, 0, 0});
    graph.events.push_back({GraphEvent::Kind::kFree, v, 0, 0});
  }
  return graph;
}

TEST(StepPlanner, CountsOnTheMostThatContentsWerePackedTo) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  graph.values[0].droppable = true;
  graph.events.push_back({GraphEvent::Kind::kIdle, 0, 0, 0});
  for (const auto& [seen, counted] : {std::pair{8, 8}, {16, 16}, {8, 16}, {0, 0}, {8, 0}}) {
    graph.values[0].packed_bytes = seen;
    planner.observe(graph, /*room=*/100);
    EXPECT_EQ(planner.graph()->values[0].packed_bytes, counted) << seen;
  }
}

TEST(StepPlanner, DoesNotPlanAnewForWhatIsAliveBefore) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (int i = 0; i < 4; ++i) planner.observe(graph, /*room=*/100);
  const auto before = planner.schedules(100);
  graph.baseline_bytes += 4;
  planner.observe(graph, /*room=*/100);
  EXPECT_EQ(planner.schedules(100), before);
  const auto other = planner.schedules(80);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0]->plan.predicted_peak_bytes, 4 + 64);
}

// As micro-batches do: in the first gradients are made, in the others they are there.
TEST(StepPlanner, PlansEverMoreRarelyForWhatAlternates) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  std::shared_ptr<const Schedule> followed;
  int early = 0, late = 0;
  for (int i = 0; i < 400; ++i) {
    graph.events[0].rise = i % 2 == 0 ? 64 : 96;
    planner.observe(graph, /*room=*/100);
    const auto schedules = planner.schedules(100);
    ASSERT_EQ(schedules.size(), 1u);
    (i < 16 ? early : late) += schedules[0] != followed ? 1 : 0;
    followed = schedules[0];
  }
  EXPECT_GE(early, 8);
  EXPECT_LE(late, 8);
}

TEST(StepPlanner, PlansAnewOnlyWhereReplaysTakeSomeOfTheTime) {
  for (const double step_seconds : {20.0, 2000.0}) {
    StepPlanner planner("auto", true);
    Graph graph = chain(100);
    graph.step_seconds = step_seconds;
    planner.observe(graph, /*room=*/400);
    const auto first = planner.schedules(400);
    ASSERT_EQ(first.size(), 1u);
    EXPECT_GT(first[0]->plan.predicted_seconds, 0);
    for (int i = 0; i < 3; ++i) planner.observe(graph, /*room=*/400);
    EXPECT_EQ(planner.schedules(400) == first, step_seconds > 1000) << step_seconds;
  }
}

TEST(StepPlanner, MovesNothingWhereStepsTurnOutToBeSlowerWithMoves) {
  for (const bool slower : {false, true}) {
    StepPlanner planner("auto", true);
    Graph graph = chain(1 << 20);
    graph.step_seconds = 20;
    graph.tier = Tier{.costs = {{1e-9, 1e-9}, {1e-9, 1e-9}}, .bytes = 1 << 30};
    const int64_t room = graph.plain_peak_bytes() / 2;
    for (int i = 0; i < 4; ++i) planner.observe(graph, room);
    const auto moves = [&] {
      const auto followed = planner.schedules(room);
      const Schedule& first = *followed.at(0);
      const bool moved = std::ranges::count(first.plan.actions, Action::kMove) > 0;
      EXPECT_LE(first.plan.predicted_peak_bytes, room);
      EXPECT_EQ(planner.decision(&first, PlanFollower(), nullptr).reason, "");
      planner.note_seconds(first, moved == slower ? 1.5 : 1);
      return moved;
    };
    int moved = 0;
    for (int i = 0; i < 2 * MoveTrial::kSteps; ++i) moved += moves() ? 1 : 0;
    EXPECT_EQ(moved, MoveTrial::kSteps);
    const auto chosen = planner.schedules(room).at(0);
    EXPECT_EQ(std::ranges::count(chosen->plan.actions, Action::kMove) > 0, !slower);
    EXPECT_EQ(planner.decision(chosen.get(), PlanFollower(), nullptr).reason,
              slower ? "moves were tried: steps took 1.5 s with them, 1 s without" : "");
    EXPECT_EQ(planner.schedules(room).at(0), chosen);
    for (int i = 0; i < 6; ++i) planner.note_seconds(*chosen, 9);
    EXPECT_EQ(planner.schedules(room).at(0), chosen) << "it is over";
    const auto other = planner.schedules(room * 2 / 3);
    EXPECT_GT(std::ranges::count(other.at(0)->plan.actions, Action::kMove), 0) << "a trial of its own";
  }
}

TEST(StepPlanner, ForgetsWhatHappenedOnce) {
  StepPlanner planner("auto", true);
  const Graph graph = one_operator();
  Graph compiled = graph;
  compiled.events.push_back({GraphEvent::Kind::kOther, -1, 32, 0});
  planner.observe(compiled, /*room=*/100, /*changed=*/false, /*once=*/true);
  EXPECT_EQ(planner.graph()->events, compiled.events);
  EXPECT_EQ(planner.schedules(100).size(), 1u);
  planner.observe(graph, /*room=*/100);
  EXPECT_EQ(planner.graph()->events, graph.events);
  EXPECT_EQ(planner.schedules(100).size(), 1u);
  planner.observe(graph, /*room=*/100, /*changed=*/false, /*once=*/true);  // as it was before: the plan is good
  EXPECT_EQ(planner.schedules(100).size(), 1u);
}

TEST(StepPlanner, UsesTheMedianOfTheTimesSeen) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (const double seconds : {9.0, 1.0, 2.0, 1.5}) {
    EXPECT_TRUE(planner.wants_trace());
    graph.operators[0].seconds = graph.operators[0].replay_seconds = seconds;
    graph.step_seconds = 10 * seconds;
    planner.observe(graph, /*room=*/100);
  }
  EXPECT_FALSE(planner.wants_trace());
  EXPECT_EQ(planner.graph()->operators[0].seconds, 2.0);
  EXPECT_EQ(planner.graph()->step_seconds, 20.0);
}

TEST(StepPlanner, LooksForStepsThatFollowNoPlanEverMoreRarely) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (int i = 0; i < 4; ++i) planner.observe(graph, /*room=*/100);
  int looked = 0;
  for (int i = 0; i < 200; ++i) {
    const bool traced = planner.wants_trace();
    looked += traced ? 1 : 0;
    planner.note(/*followed=*/false, /*evictions=*/1, traced);
    graph.operators[0].name = "aten::op" + std::to_string(i);  // none is like another
    if (traced) planner.observe(graph, /*room=*/100);
    EXPECT_TRUE(i > 0 || planner.wants_trace());
  }
  EXPECT_GE(looked, 2);
  EXPECT_LE(looked, 60);
}

TEST(StepPlanner, ChoosesForSizesThatWereNeverSeen) {
  StepPlanner planner("auto", true);
  for (const int64_t bytes : {100, 50, 70}) planner.observe(chain(bytes), /*room=*/400);
  const auto schedules = planner.schedules(/*room=*/400);
  ASSERT_EQ(schedules.size(), 3u);
  PlanFollower::Seen seen{.bytes = std::vector<int64_t>(6, -1), .away = std::vector<bool>(6, false)};
  const auto resized = [&](int64_t bytes) {
    seen.bytes[0] = bytes;
    return planner.resized(schedules[0], seen);
  };
  const auto fits = resized(60), tight = resized(90), hopeless = resized(300);
  ASSERT_NE(fits, nullptr);
  EXPECT_EQ(fits->plan.actions, std::vector<Action>(6, Action::kKeep));
  EXPECT_EQ(fits->plan.predicted_peak_bytes, 6 * 60);
  ASSERT_NE(tight, nullptr);
  EXPECT_TRUE(tight->resized);
  EXPECT_NE(tight->plan.actions, std::vector<Action>(6, Action::kKeep));
  EXPECT_LE(tight->plan.predicted_peak_bytes, 400);
  EXPECT_EQ(hopeless, nullptr);
}

}  // namespace
}  // namespace remat::test

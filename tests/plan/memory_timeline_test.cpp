#include <remat/timeline.h>

#include <gtest/gtest.h>

#include <remat/error.h>
#include <remat/planner.h>

#include "random_graph.h"
#include "sample_graph.h"
#include "step_builder.h"
#include "support/actions.h"

namespace remat::test {
namespace {

using Work = TimelineMoment::Work;

std::vector<Action> keep_all(const Graph& graph) { return std::vector<Action>(graph.values.size(), Action::kKeep); }

bool has_negative(const MemoryParts& p) {
  return std::min({p.parameters, p.gradients, p.optimizer, p.kept, p.packed, p.recomputed, p.temporaries}) < 0;
}

TEST(Timeline, HasThePeakAndTheTimeThatThePlanPredicts) {
  std::mt19937 random(1);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Graph graph = RandomGraph(seed).with_policies(seed % 2 == 1).make(3 + static_cast<int>(seed % 30));
    graph.parameter_bytes = 300;
    graph.gradient_bytes = 100;
    for (int i = 0; i < 5; ++i) {
      const auto actions = random_actions(graph, random);
      const Prediction expected = predict(graph, actions);
      const Timeline timeline = make_timeline(graph, actions);
      ASSERT_EQ(timeline.peak_bytes(), expected.peak_bytes) << seed;
      const double replays_of_policies = predict(graph, keep_all(graph)).seconds;
      const double plain_seconds = make_timeline(graph).end_seconds - replays_of_policies;
      ASSERT_NEAR(timeline.end_seconds - plain_seconds, expected.seconds, 1e-9) << seed;
      double before = 0;
      for (const TimelineMoment& moment : timeline.moments) {
        ASSERT_FALSE(has_negative(moment.parts)) << seed;
        ASSERT_GE(moment.begin_seconds, before - 1e-12) << seed;
        before = moment.begin_seconds;
      }
      ASSERT_LE(before, timeline.end_seconds + 1e-12);
    }
  }
}

// Two operators of 1 s, each with a result of 100 and 60 bytes that backward uses; 64 bytes of parameters.
Graph two_values() {
  StepBuilder step;
  const int32_t first = step.saved({0}, 100, 1, 10);
  step.saved({first}, 60);
  Graph graph = step.graph();
  graph.baseline_bytes = 64;
  graph.parameter_bytes = 64;
  return graph;
}

const TimelineMoment& moment_of(const Timeline& timeline, Work work, int32_t index) {
  for (const TimelineMoment& moment : timeline.moments) {
    if (moment.work == work && moment.index == index) return moment;
  }
  throw std::logic_error("there is no such moment");
}

TEST(Timeline, TellsWhatIsKeptPackedAndRecomputed) {
  const Graph graph = two_values();
  const Timeline plain = make_timeline(graph);
  EXPECT_EQ(plain.moments[plain.peak_moment()].parts, (MemoryParts{.parameters = 64, .kept = 160}));

  auto actions = keep_all(graph);
  actions[1] = Action::kRecompute;
  const Timeline recomputed = make_timeline(graph, actions);
  const TimelineMoment& replay = moment_of(recomputed, Work::kRecompute, 0);
  EXPECT_EQ(replay.value, 1);
  EXPECT_EQ(replay.parts, (MemoryParts{.parameters = 64, .recomputed = 100}));  // the other one is free by then
  const TimelineMoment& use = *(&replay + 1);
  EXPECT_EQ(use.work, Work::kBackward);
  EXPECT_EQ(use.parts, replay.parts);  // it is held for its use

  actions[1] = Action::kPack;
  const Timeline packed = make_timeline(graph, actions);
  const TimelineMoment& unpacked = moment_of(packed, Work::kUnpack, -1);
  EXPECT_EQ(unpacked.value, 1);
  EXPECT_EQ(unpacked.parts, (MemoryParts{.parameters = 64, .packed = 10, .recomputed = 100}));
  EXPECT_EQ(packed.peak_bytes(), 64 + 10 + 100);
}

TEST(Timeline, CountsWhatAPlanGivesUpAsATemporaryUntilThen) {
  const Graph graph = two_values();
  auto actions = keep_all(graph);
  actions[1] = Action::kRecompute;
  bool seen = false;
  for (const TimelineMoment& moment : make_timeline(graph, actions).moments) {
    if (moment.work == Work::kForward) seen |= moment.parts.temporaries == 100 && moment.parts.kept == 0;
  }
  EXPECT_TRUE(seen);
}

TEST(Timeline, CountsWhatBackwardLeavesAsGradients) {
  Graph graph = two_values();
  graph.events.push_back({GraphEvent::Kind::kOther, -1, 30, 24});  // 24 bytes stay, 6 are scratch space
  const Timeline timeline = make_timeline(graph);
  EXPECT_EQ(timeline.moments.back().parts, (MemoryParts{.parameters = 64, .gradients = 24, .temporaries = 6}));
  EXPECT_EQ(timeline.moments.front().parts.gradients, 0);
}

TEST(Timeline, TakesFreedGradientsFromThoseOfTheBeginning) {
  Graph graph = two_values();
  graph.baseline_bytes += 40;
  graph.gradient_bytes = 40;
  graph.events.push_back({GraphEvent::Kind::kOther, -1, 0, -40});
  graph.events.push_back({GraphEvent::Kind::kOther, -1, 0, 0});
  EXPECT_EQ(make_timeline(graph).moments.back().parts, (MemoryParts{.parameters = 64}));
}

TEST(Timeline, SpreadsWhatForwardLeavesOfTheStepOverBackward) {
  StepBuilder step;  // 2 s in operators, 6 s altogether
  step.saved({0}, 100);
  step.saved({0}, 100);
  const Graph graph = step.graph();
  const Timeline timeline = make_timeline(graph);
  EXPECT_TRUE(timeline.timed);
  EXPECT_DOUBLE_EQ(timeline.backward_seconds, 2);
  EXPECT_DOUBLE_EQ(timeline.end_seconds, 6);
  EXPECT_DOUBLE_EQ(moment_of(timeline, Work::kBackward, 1).begin_seconds, 2);
  EXPECT_DOUBLE_EQ(moment_of(timeline, Work::kBackward, 0).begin_seconds, 4);
}

TEST(Timeline, CountsEventsWhereThereAreNoTimes) {
  Graph graph = two_values();
  graph.step_seconds = 0;
  for (GraphOperator& op : graph.operators) op.seconds = op.replay_seconds = 0;
  const Timeline timeline = make_timeline(graph);
  EXPECT_FALSE(timeline.timed);
  EXPECT_DOUBLE_EQ(timeline.end_seconds, static_cast<double>(graph.events.size() + 1));
}

TEST(Timeline, OfAGraphOfOneOfEverything) {
  const Graph graph = sample_graph();
  std::vector<Action> actions = keep_all(graph);
  actions[2] = actions[4] = Action::kRecompute;
  actions[3] = Action::kPack;
  EXPECT_EQ(make_timeline(graph, actions).peak_bytes(), predict(graph, actions).peak_bytes);
  EXPECT_TRUE(make_timeline(Graph{}).moments.size() == 1);  // the beginning
}

TEST(Timeline, RefusesWhatIsNotSound) {
  Graph graph = two_values();
  EXPECT_THROW(make_timeline(graph, {}), Error);
  graph.values[1].producer = 7;
  EXPECT_THROW(make_timeline(graph), Error);
}

}  // namespace
}  // namespace remat::test

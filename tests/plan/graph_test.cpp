#include <remat/graph.h>

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "plan/sample_graph.h"

namespace remat {
namespace {

using EventKind = GraphEvent::Kind;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

/// A change of the sample, and what problem() says then.
struct Fault {
  void (*change)(Graph&);
  const char* problem;
};

void expect_problems(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    Graph graph = sample_graph();
    fault.change(graph);
    EXPECT_EQ(graph.problem(), fault.problem);
    EXPECT_FALSE(graph.is_valid());
  }
}

TEST(Graph, SoundOnesHaveNoProblem) {
  EXPECT_EQ(Graph().problem(), "");
  EXPECT_EQ(sample_graph().problem(), "");
  EXPECT_EQ(chain_graph(1000).problem(), "");
  EXPECT_TRUE(sample_graph().is_valid());
}

TEST(Graph, ValuesThatAreNone) {
  expect_problems({
      {[](Graph& g) { g.values[1].bytes = -64; }, "value 1 has bytes -64"},
      {[](Graph& g) { g.values[3].packed_bytes = -8; }, "value 3 has packed_bytes -8"},
      {[](Graph& g) { g.values[1].droppable = true; },
       "value 1 is droppable, but no operator makes it: its producer is -1"},
      {[](Graph& g) { g.values[1].dropped = true; },
       "value 1 is dropped, but no operator makes it: its producer is -1"},
      {[](Graph& g) { g.values[2].dropped = true; }, "value 2 is both droppable and dropped"},
      {[](Graph& g) { g.values[4].producer = 3; }, "value 4 has producer 3; there are 3 operators, numbered from 0"},
      {[](Graph& g) { g.values[4].producer = -2; }, "value 4 has producer -2; there are 3 operators, numbered from 0"},
      {[](Graph& g) { std::swap(g.values[3].producer, g.values[4].producer); },
       "value 4 has producer 1, an older value has 2; values are numbered in the order in which they came to be"},
      {[](Graph& g) {
         g.values.push_back({8, 2, 0, false});
       },
       "value 5 says that operator 2 makes it, but it is not among that operator's results"},
  });
}

TEST(Graph, OperatorsThatCannotHaveRun) {
  expect_problems({
      {[](Graph& g) { g.operators[1].inputs = {5}; }, "operator 1 reads value 5; there are 5 values, numbered from 0"},
      {[](Graph& g) { g.operators[1].inputs = {-1}; },
       "operator 1 reads value -1; there are 5 values, numbered from 0"},
      {[](Graph& g) {
         g.operators[1].inputs = {2, 1, 2};
       },
       "operator 1 has value 2 twice among its inputs"},
      {[](Graph& g) {
         g.operators[1].inputs = {2, 4};
       },
       "operator 1 reads value 4, which operator 2 has yet to make"},
      {[](Graph& g) { g.operators[1].inputs = {3}; }, "operator 1 reads value 3, which operator 1 has yet to make"},
      {[](Graph& g) {
         g.values.push_back({8, -1, 0, false});
         g.operators[1].inputs = {5, 2};
       },
       "operator 1 makes value 3 from the newer value 5; values are numbered in the order in which they came to be"},
      {[](Graph& g) { g.operators[2].overwritten = {-7}; },
       "operator 2 overwrites value -7; there are 5 values, numbered from 0"},
      {[](Graph& g) { g.operators[2].overwritten = {2}; },
       "operator 2 overwrites value 2, which is not among its inputs"},
      {[](Graph& g) {
         g.operators[2].overwritten = {3, 3};
       },
       "operator 2 has value 3 twice among what it overwrites"},
      {[](Graph& g) {
         g.operators[2].results = {4, 5};
       },
       "operator 2 makes value 5; there are 5 values, numbered from 0"},
      {[](Graph& g) {
         g.operators[2].results = {4, 3};
       },
       "operator 2 makes value 3, which says that its producer is 1"},
      {[](Graph& g) {
         g.operators[2].results = {4, 1};
       },
       "operator 2 makes value 1, which says that its producer is -1"},
      {[](Graph& g) {
         g.operators[2].results = {4, 4};
       },
       "operator 2 has value 4 twice among its results"},
      {[](Graph& g) { g.operators[0].results.clear(); },
       "value 2 says that operator 0 makes it, but it is not among that operator's results"},
  });
}

TEST(Graph, SizesAndTimesThatAreNone) {
  expect_problems({
      {[](Graph& g) { g.baseline_bytes = -1; }, "the graph has baseline_bytes -1"},
      {[](Graph& g) { g.parameter_bytes = -1; }, "the graph has parameter_bytes -1"},
      {[](Graph& g) { g.gradient_bytes = -1; }, "the graph has gradient_bytes -1"},
      {[](Graph& g) { g.gradient_bytes = 65; },
       "the graph has parameter_bytes 400 and gradient_bytes 65, together above its baseline_bytes 464"},
      {[](Graph& g) { g.parameter_bytes = g.gradient_bytes = std::numeric_limits<int64_t>::max(); },
       "the graph has parameter_bytes 9223372036854775807 and gradient_bytes 9223372036854775807, together above its "
       "baseline_bytes 464"},
      {[](Graph& g) { g.step_seconds = std::nan(""); },
       "the graph has step_seconds nan; a time is finite and not negative"},
      {[](Graph& g) { g.operators[0].scratch_bytes = -16; }, "operator 0 has scratch_bytes -16"},
      {[](Graph& g) { g.operators[2].seconds = -0.5; },
       "operator 2 has seconds -0.5; a time is finite and not negative"},
      {[](Graph& g) { g.operators[1].replay_seconds = std::numeric_limits<double>::infinity(); },
       "operator 1 has replay_seconds inf; a time is finite and not negative"},
      {[](Graph& g) { g.events[5].rise = -128; }, "event 5 has rise -128"},
      {[](Graph& g) { g.events[2].delta = 65; }, "event 2 has delta 65, which is above its rise 64"},
      {[](Graph& g) { g.events[2].reused = 1; },
       "event 2 has reused 1, which its rise 64 and delta 64 allow from 0 to 0"},
      {[](Graph& g) { g.events[2].reused = -1; },
       "event 2 has reused -1, which its rise 64 and delta 64 allow from 0 to 0"},
  });
}

TEST(Graph, SumsThatWouldOverflow) {
  const char* const too_many = "the bytes of the graph add up to more than 2^60";
  expect_problems({
      {[](Graph& g) { g.baseline_bytes = kMost; }, too_many},
      {[](Graph& g) { g.values[1].bytes = kMost; }, too_many},
      {[](Graph& g) { g.values[3].packed_bytes = kMost; }, too_many},
      {[](Graph& g) { g.operators[0].scratch_bytes = kMost; }, too_many},
      {[](Graph& g) { g.events[5].rise = kMost; }, too_many},
      {[](Graph& g) { g.events[5].delta = kLeast; }, too_many},
      {[](Graph& g) { g.events[5].delta = g.events[6].delta = kLeast; }, too_many},  // 2^64: nothing, in 64 bits
      {[](Graph& g) { g.step_seconds = 2e12; }, "the times of the graph add up to more than 1e12 seconds"},
      {[](Graph& g) { g.operators[0].seconds = 6e11, g.operators[1].replay_seconds = 6e11; },
       "the times of the graph add up to more than 1e12 seconds"},
      {[](Graph& g) { g.operators[0].seconds = g.operators[1].seconds = std::numeric_limits<double>::max(); },
       "the times of the graph add up to more than 1e12 seconds"},
  });
  Graph largest;
  largest.values = {{int64_t{1} << 60, -1, 0, false}};
  EXPECT_EQ(largest.problem(), "");
  largest.baseline_bytes = 1;
  EXPECT_EQ(largest.problem(), too_many);
}

TEST(Graph, TimelinesThatCannotHaveHappened) {
  expect_problems({
      {[](Graph& g) { g.events[0].index = 3; }, "event 0 runs operator 3; there are 3 operators, numbered from 0"},
      {[](Graph& g) { g.events[0].index = 1; },
       "event 0 runs operator 1 where operator 0 comes next; each runs once, in order"},
      {[](Graph& g) { g.events[4].index = 1; },
       "event 4 runs operator 1 where operator 2 comes next; each runs once, in order"},
      {[](Graph& g) { g.events.resize(4); }, "no event runs operator 2; each runs once, in order"},
      {[](Graph& g) { g.events[5].index = 0; }, "event 5 is of no kind with an index, but has index 0"},
      {[](Graph& g) { g.events[5].kind = static_cast<EventKind>(5); }, "event 5 has the unknown kind 5"},
      {[](Graph& g) { g.events[1].index = 5; }, "event 1 makes idle value 5; there are 5 values, numbered from 0"},
      {[](Graph& g) { g.events[8].index = -1; }, "event 8 frees value -1; there are 5 values, numbered from 0"},
      {[](Graph& g) { g.events[1].index = 3; }, "event 1 makes idle value 3 before operator 1 has run, which makes it"},
      {[](Graph& g) { g.events[6].index = 2; }, "event 6 makes idle value 2, which is idle already"},
      {[](Graph& g) { g.events[6].index = 3; }, "event 6 makes idle value 3, which is idle already"},
      {[](Graph& g) { g.events[9].index = 4; }, "event 9 uses value 4, which has been freed before"},
      {[](Graph& g) {
         g.events[9] = {EventKind::kIdle, 4, 0, 0};
       },
       "event 9 makes idle value 4, which has been freed before"},
      {[](Graph& g) { g.events[13].index = 2; }, "event 13 frees value 2, which has been freed before"},
      {[](Graph& g) { g.baseline_bytes = 10, g.parameter_bytes = g.gradient_bytes = 0, g.events[8].delta = -300; },
       "event 8 leaves plain with -162 bytes"},
  });
}

TEST(Graph, EventsOfValuesThatNoPlanDropsAreFree) {
  Graph graph = sample_graph();
  graph.values[2].droppable = false;
  for (const EventKind kind : {EventKind::kUse, EventKind::kIdle, EventKind::kFree, EventKind::kIdle})
    graph.events.push_back({kind, 2, 0, 0});
  EXPECT_EQ(graph.problem(), "");
}

TEST(Graph, FingerprintIsTheSameOnEveryMachine) {
  EXPECT_EQ(Graph().fingerprint(), 0x238275bc38fcbe91U);
  EXPECT_EQ(sample_graph().fingerprint(), 0x8670ef97cd66434aU);
}

TEST(Graph, FingerprintLeavesOutTimesAndTheBytesBetween) {
  Graph graph = sample_graph();
  graph.baseline_bytes += 1;
  graph.parameter_bytes += 1;
  graph.gradient_bytes -= 1;
  graph.step_seconds += 1;
  graph.values[3].packed_bytes += 1;
  graph.operators[0].seconds += 1;
  graph.operators[0].replay_seconds += 1;
  graph.operators[0].scratch_bytes += 1;
  graph.events[0].rise += 1;
  graph.events[0].delta += 1;
  EXPECT_NE(graph, sample_graph());
  EXPECT_EQ(graph.fingerprint(), sample_graph().fingerprint());
}

TEST(Graph, FingerprintTellsStructuresApart) {
  void (*const changes[])(Graph&) = {
      [](Graph&) {},
      [](Graph& g) { g.values[2].bytes += 1; },
      [](Graph& g) { g.values[2].producer = 1; },
      [](Graph& g) { g.values[2].droppable = false; },
      [](Graph& g) { g.values.pop_back(); },
      [](Graph& g) { g.operators[0].name = "aten::addmn"; },
      [](Graph& g) { g.operators[0].name = "aten::addm\xc3"; },
      [](Graph& g) {
        g.operators[0].inputs = {1, 0};
      },
      [](Graph& g) { g.operators[0].inputs = {0}; },
      [](Graph& g) { g.operators[2].overwritten = {1}; },
      [](Graph& g) { g.operators[2].overwritten = {}; },
      [](Graph& g) {
        g.operators[2].inputs = {3, 1, 3}, g.operators[2].overwritten = {};
      },  // the same numbers in a row
      [](Graph& g) { g.operators[2].results = {3}; },
      [](Graph& g) { g.operators.pop_back(); },
      [](Graph& g) { g.events[1].kind = EventKind::kUse; },
      [](Graph& g) { g.events[1].index = 1; },
      [](Graph& g) { std::swap(g.events[1], g.events[2]); },
      [](Graph& g) { g.events.pop_back(); },
  };
  std::vector<uint64_t> seen;
  for (const auto change : changes) {
    Graph graph = sample_graph();
    change(graph);
    for (size_t other = 0; other < seen.size(); ++other)
      EXPECT_NE(graph.fingerprint(), seen[other]) << "changes " << seen.size() << " and " << other;
    seen.push_back(graph.fingerprint());
  }
}

}  // namespace
}  // namespace remat

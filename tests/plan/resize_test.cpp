#include "plan/resize.h"

#include <gtest/gtest.h>
#include <remat/planner.h>

#include "brute_force.h"
#include "step_builder.h"

namespace remat::test {
namespace {

/// A step whose bytes grow with a batch, a length, and the square of that, as an attention's do; and a constant.
Graph two_sizes(int64_t batch, int64_t length) {
  StepBuilder step;
  const int32_t embedded = step.saved({0}, 64 * batch * length);
  const int32_t mask = step.saved({0}, batch * length * length);
  int32_t last = embedded;
  for (int layer = 0; layer < 4; ++layer) {
    const int32_t scores = step.saved({last, mask}, 4 * batch * length * length);
    last = step.saved({scores}, 64 * batch * length, 1, 8 * batch * length);
  }
  step.saved({last}, 1000);
  Graph graph = step.graph();
  graph.events[5].rise += 96 * batch * length + 500;
  graph.events[5].reused = 48 * batch * length;
  graph.operators[3].scratch_bytes = 32 * batch * length;
  return graph;
}

/// What the first `count` values of a step show.
std::vector<int64_t> shown(const Graph& graph, size_t count) {
  std::vector<int64_t> bytes(graph.values.size(), -1);
  for (size_t v = 1; v < count; ++v) bytes[v] = graph.values[v].bytes;
  return bytes;
}

TEST(Resize, StructureIsWhatSizesHaveInCommon) {
  EXPECT_EQ(structure_of(two_sizes(2, 30)), structure_of(two_sizes(3, 50)));
  EXPECT_NE(two_sizes(2, 30).fingerprint(), two_sizes(3, 50).fingerprint());
  Graph other = two_sizes(2, 30);
  other.operators[2].name = "aten::other";
  EXPECT_NE(structure_of(other), structure_of(two_sizes(2, 30)));
}

TEST(Resize, ThreeLengthsTellEveryOther) {
  const Graph a = two_sizes(4, 24), b = two_sizes(4, 64), c = two_sizes(4, 100);
  for (const int64_t length : {30, 90, 160}) {
    const Graph truth = two_sizes(4, length);
    const Resized predicted = resize({&a, &b, &c}, shown(truth, 2));
    EXPECT_TRUE(predicted.exact) << length;
    EXPECT_EQ(predicted.graph.problem(), "") << length;
    for (size_t v = 1; v < truth.values.size(); ++v) {
      EXPECT_NEAR(static_cast<double>(predicted.graph.values[v].bytes), static_cast<double>(truth.values[v].bytes),
                  1 + 0.002 * static_cast<double>(truth.values[v].bytes))
          << length << ", value " << v;
    }
    EXPECT_NEAR(static_cast<double>(plain_peak(predicted.graph)), static_cast<double>(plain_peak(truth)),
                0.002 * static_cast<double>(plain_peak(truth)));
    EXPECT_NEAR(static_cast<double>(predicted.graph.events[5].reused), static_cast<double>(truth.events[5].reused),
                1 + 0.002 * static_cast<double>(truth.events[5].reused));
    EXPECT_NEAR(static_cast<double>(predicted.graph.operators[3].scratch_bytes),
                static_cast<double>(truth.operators[3].scratch_bytes), 4);
  }
}

TEST(Resize, BatchAndLengthAtOnce) {
  const Graph a = two_sizes(2, 24), b = two_sizes(4, 64), c = two_sizes(3, 100), d = two_sizes(5, 40);
  const Graph truth = two_sizes(4, 90);
  const Resized predicted = resize({&a, &b, &c, &d}, shown(truth, 3));
  EXPECT_TRUE(predicted.exact);
  EXPECT_NEAR(static_cast<double>(plain_peak(predicted.graph)), static_cast<double>(plain_peak(truth)),
              0.005 * static_cast<double>(plain_peak(truth)));
}

TEST(Resize, OneKnownStepGrowsAndDoesNotShrink) {
  const Graph known = two_sizes(4, 64);
  const Graph larger = two_sizes(8, 64), smaller = two_sizes(2, 64);
  const Resized up = resize({&known}, shown(larger, 3));
  EXPECT_FALSE(up.exact);
  EXPECT_GE(plain_peak(up.graph), plain_peak(larger));
  const Resized down = resize({&known}, shown(smaller, 3));
  EXPECT_FALSE(down.exact);
  EXPECT_GE(plain_peak(down.graph), plain_peak(smaller));
  EXPECT_LE(plain_peak(down.graph), plain_peak(known));
}

TEST(Resize, WhatWasSeenCountsAsItIs) {
  const Graph a = two_sizes(4, 24), b = two_sizes(4, 64), c = two_sizes(4, 100);
  const Graph truth = two_sizes(4, 80);
  std::vector<int64_t> seen = shown(truth, 5);
  seen[4] += 5000;  // by no length
  const Resized predicted = resize({&a, &b, &c}, seen);
  EXPECT_FALSE(predicted.exact);
  EXPECT_EQ(predicted.graph.values[4].bytes, truth.values[4].bytes + 5000);
  EXPECT_NEAR(static_cast<double>(plain_peak(predicted.graph)), static_cast<double>(plain_peak(truth) + 5000),
              0.03 * static_cast<double>(plain_peak(truth)));
}

TEST(Resize, SecondsGoWithBytes) {
  const Graph a = two_sizes(4, 24), b = two_sizes(4, 64), c = two_sizes(4, 100);
  const Resized predicted = resize({&a, &b, &c}, shown(two_sizes(4, 50), 2));
  EXPECT_NEAR(predicted.graph.operators[0].seconds, 50.0 / 64, 0.01);
  EXPECT_NEAR(predicted.graph.operators[2].seconds, 50.0 * 50 / (64 * 64), 0.01);
}

}  // namespace
}  // namespace remat::test

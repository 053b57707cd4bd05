#include "plan/extrapolation.h"

#include <gtest/gtest.h>

#include "step_builder.h"

namespace remat::test {
namespace {

Graph sized(int64_t size, int64_t square = 0) {
  StepBuilder step;
  const int32_t first = step.saved({0}, 48 * size + 16);
  const int32_t scores = step.saved({first}, 8 * size + square * size * size, 1, size);
  step.saved({first, scores}, 1000);
  Graph graph = step.graph();
  graph.baseline_bytes = 5000 + 24 * size;
  graph.operators[1].scratch_bytes = 32 * size;
  graph.events[1].rise += 96 * size + 500;
  return graph;
}

void expect_bytes(const Graph& predicted, const Graph& truth) {
  EXPECT_EQ(predicted.problem(), "");
  EXPECT_EQ(predicted.baseline_bytes, truth.baseline_bytes);
  EXPECT_EQ(predicted.events, truth.events);
  for (size_t v = 0; v < truth.values.size(); ++v) EXPECT_EQ(predicted.values[v], truth.values[v]) << v;
  EXPECT_EQ(predicted.operators[1].scratch_bytes, truth.operators[1].scratch_bytes);
}

std::map<int64_t, Graph> known(const std::vector<int64_t>& sizes, int64_t square = 0) {
  std::map<int64_t, Graph> graphs;
  for (const int64_t size : sizes) graphs.emplace(size, sized(size, square));
  return graphs;
}

TEST(Extrapolation, TwoSizesTellALine) { expect_bytes(extrapolate(known({2, 5}), 321), sized(321)); }

TEST(Extrapolation, ThreeSizesTellASquare) {
  const auto graphs = known({16, 40, 64}, 3);
  for (const int64_t size : {8, 50, 1000}) expect_bytes(extrapolate(graphs, size), sized(size, 3));
}

TEST(Extrapolation, WhatAKernelAllocatesMayHaveAKink) {
  auto graphs = known({4, 8, 16});
  for (auto& [size, graph] : graphs) graph.operators[1].scratch_bytes = std::max<int64_t>(400, 32 * size);
  EXPECT_EQ(extrapolate(graphs, 64).operators[1].scratch_bytes, 32 * 64);
}

TEST(Extrapolation, RoundedAllocationsAreNoCurve) {
  auto graphs = known({3, 4, 5});
  graphs.at(5).events[1].rise += 64;
  EXPECT_NEAR(static_cast<double>(extrapolate(graphs, 128).events[1].rise),
              static_cast<double>(sized(128).events[1].rise + 64 * 124), 1);
}

TEST(Extrapolation, OneSizeGrowsInProportionButForTheBaseline) {
  const Graph predicted = extrapolate(known({4}), 8);
  EXPECT_EQ(predicted.baseline_bytes, sized(4).baseline_bytes);
  EXPECT_EQ(predicted.values[1].bytes, 2 * sized(4).values[1].bytes);
}

TEST(Extrapolation, BetweenKnownSizesThoseAroundTell) {
  auto graphs = known({2, 4, 8});
  Graph odd = sized(100);
  odd.values[1].bytes *= 10;
  graphs.emplace(100, odd);
  EXPECT_EQ(extrapolate(graphs, 6).values[1].bytes, sized(6).values[1].bytes);
}

TEST(Extrapolation, SecondsGrowWithTheBytesOfResults) {
  const Graph predicted = extrapolate(known({4, 8}), 80);
  EXPECT_NEAR(predicted.operators[0].seconds, 10, 0.5);
  EXPECT_NEAR(predicted.operators[2].seconds, 1, 1e-9);
}

}  // namespace
}  // namespace remat::test

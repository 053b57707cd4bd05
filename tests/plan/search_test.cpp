#include "plan/search.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "bench/generated_graphs.h"
#include "brute_force.h"
#include "random_graph.h"

namespace remat::test {
namespace {

using planners::Actions;
using planners::ParetoFront;
using planners::Search;

constexpr int64_t kWork = 20'000'000;

ParetoFront kept(const Graph& graph) {
  ParetoFront front;
  const Actions keep(graph.values.size(), Action::kKeep);
  front.offer(Simulator(graph).run(keep), keep);
  return front;
}

TEST(Search, FindsTheOptimumOfSmallGraphsFromPlain) {
  int optimal = 0, searches = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const Graph graph = RandomGraph(seed).with_policies(seed % 3 == 0).make(8);
    const BruteForce all(graph);
    if (all.choices() == 0 || all.choices() > BruteForce::kMostChoices) continue;
    const int64_t limit = (all.lowest_peak() + plain_peak(graph)) / 2;
    ParetoFront front = kept(graph);
    Search(graph, {}, front).run(limit, kWork);
    ++searches;
    ASSERT_NE(front.within(limit), nullptr) << seed;
    optimal += front.within(limit)->seconds <= all.least_seconds(limit) + 1e-9 ? 1 : 0;
  }
  EXPECT_GT(searches, 15);
  EXPECT_EQ(optimal, searches);
}

TEST(Search, WhatItOffersIsWhatTheSimulatorSays) {
  const Graph graph = bench::generate_graph("unet", 300, 5);
  const int64_t limit = graph.baseline_bytes + (plain_peak(graph) - graph.baseline_bytes) / 2;
  ParetoFront front = kept(graph);
  Search(graph, {}, front).run(limit, kWork);
  Simulator simulator(graph);
  int points = 0;
  const ParetoFront::Point* point = front.within(INT64_MAX);
  for (int64_t below = INT64_MAX; (point = front.within(below)) != nullptr; ++points) {
    const Simulation run = simulator.run(point->actions);
    ASSERT_LT(run.peak_bytes, below);
    EXPECT_NEAR(run.seconds, point->seconds, 1e-9);
    EXPECT_EQ(front.within(run.peak_bytes), point);
    below = run.peak_bytes - 1;
  }
  EXPECT_GT(points, 10);
}

TEST(Search, MoreWorkIsNeverSlower) {
  const Graph graph = bench::generate_graph("resnet", 300, 5);
  const int64_t limit = graph.baseline_bytes + (plain_peak(graph) - graph.baseline_bytes) * 2 / 5;
  ParetoFront front = kept(graph);
  Search search(graph, {}, front);
  double seconds = INFINITY;
  for (int i = 0; i < 4; ++i) {
    search.run(limit, kWork / 4);
    ASSERT_NE(front.within(limit), nullptr);
    EXPECT_LE(front.within(limit)->seconds, seconds);
    seconds = front.within(limit)->seconds;
  }
}

TEST(Search, PacksOnlyWherePlansMay) {
  const Graph graph = RandomGraph(7).make(60);
  const int64_t limit = graph.baseline_bytes + (plain_peak(graph) - graph.baseline_bytes) / 2;
  for (const bool pack : {true, false}) {
    ParetoFront front = kept(graph);
    Search(graph, {.pack = pack}, front).run(limit, kWork);
    ASSERT_NE(front.within(limit), nullptr);
    const Actions& actions = front.within(limit)->actions;
    EXPECT_EQ(std::count(actions.begin(), actions.end(), Action::kPack) > 0, pack);
  }
}

}  // namespace
}  // namespace remat::test

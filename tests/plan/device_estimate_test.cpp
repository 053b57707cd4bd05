#include <remat/device_estimate.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <remat/error.h>
#include <remat/planner.h>

namespace remat::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
using Kind = GraphEvent::Kind;

/// 1 = op(0), 2 = op(1), both saved, 12 MiB each; backward has a temporary of 14 MiB, and leaves a gradient of 16 MiB.
Graph two_values() {
  Graph graph;
  graph.baseline_bytes = 64 * kMiB;
  graph.step_seconds = 6;
  graph.values = {{64 * kMiB}, {12 * kMiB, 0, 0, true}, {12 * kMiB, 1, 0, true}};
  graph.operators = {{"aten::op", 1, 1, 0, {0}, {}, {1}}, {"aten::op", 1, 1, 0, {1}, {}, {2}}};
  graph.events = {{Kind::kOther, -1, 12 * kMiB, 12 * kMiB},
                  {Kind::kOperator, 0, 12 * kMiB, 12 * kMiB},
                  {Kind::kIdle, 1, 0, 0},
                  {Kind::kOperator, 1, 0, 0},
                  {Kind::kIdle, 2, 14 * kMiB, 0},
                  {Kind::kUse, 2, 0, 0},
                  {Kind::kFree, 2, 16 * kMiB, 16 * kMiB},
                  {Kind::kUse, 1, 0, 0},
                  {Kind::kFree, 1, 0, 0}};
  return graph;
}

StepAllocations blocks_of_two_values() {
  return {{{0, 0, 12 * kMiB}, {1, 1, 12 * kMiB}, {4, 2, 14 * kMiB}, {4, 2, 0}, {6, 3, 16 * kMiB}}, {-1, 0, 1}};
}

const TrainingLoop kLoop = {.model = {64 * kMiB}, .state = {30 * kMiB}, .update = {10 * kMiB}};
const TrainingLoop kWithoutOptimizer = {.model = {64 * kMiB}, .state = {}, .update = {}};

TEST(DeviceEstimate, PlainTakesEveryBlock) {
  const DevicePeaks peaks = predict_on_device(two_values(), blocks_of_two_values(), kLoop, {});
  EXPECT_EQ(peaks.step_bytes, (64 + 30 + 12 + 12 + 14) * kMiB);
  EXPECT_EQ(peaks.allocated_bytes, (64 + 30 + 12 + 12 + 14) * kMiB);
  // The first step has no state yet, and its update finds the values' segments free.
  EXPECT_EQ(peaks.reserved_in_steps,
            (std::vector<int64_t>{(64 + 12 + 12 + 14 + 16 + 30) * kMiB, (64 + 12 + 12 + 14 + 16 + 30) * kMiB,
                                  (64 + 12 + 12 + 14 + 16 + 30) * kMiB}));
  EXPECT_TRUE(peaks.fits);
  EXPECT_EQ(peaks.releases, 0);
}

TEST(DeviceEstimate, AShorterDeviceReleasesWhatIsCachedOrDoesNotDo) {
  const auto with = [](int64_t mib) {
    return predict_on_device(two_values(), blocks_of_two_values(), kLoop, {.bytes = mib * kMiB, .settings = ""});
  };
  EXPECT_TRUE(with(148).fits);
  EXPECT_EQ(with(148).releases, 0);
  EXPECT_TRUE(with(146).fits);
  EXPECT_GT(with(146).releases, 0);
  EXPECT_LE(with(146).reserved_bytes, 146 * kMiB);
  EXPECT_FALSE(with(120).fits);
}

TEST(DeviceEstimate, APlanFreesBlocksAndMakesThemAnew) {
  const Graph graph = two_values();
  Plan plan = make_plan(graph, graph.baseline_bytes + 28 * kMiB);
  ASSERT_NE(plan.actions[1].kind, Action::Kind::kKeep);
  plan.budget_bytes = 1000 * kMiB;
  const DevicePeaks peaks = predict_on_device(graph, blocks_of_two_values(), kWithoutOptimizer, {}, &plan);
  EXPECT_EQ(peaks.step_bytes, plan.predicted_peak_bytes);
  EXPECT_LT(peaks.allocated_bytes,
            predict_on_device(graph, blocks_of_two_values(), kWithoutOptimizer, {}).allocated_bytes);
}

TEST(DeviceEstimate, WhatAPlanReservesBeyondItsBudgetIsSaid) {
  const Graph graph = two_values();
  const Plan plan = make_plan(graph, graph.baseline_bytes + 28 * kMiB);
  const DevicePeaks peaks = predict_on_device(graph, blocks_of_two_values(), kWithoutOptimizer, {}, &plan);
  EXPECT_EQ(peaks.reserved_bytes, plan.budget_bytes + peaks.beyond_bytes);
  EXPECT_TRUE(peaks.fits);
  const DevicePeaks exact = predict_on_device(graph, blocks_of_two_values(), kWithoutOptimizer,
                                              {.bytes = plan.budget_bytes, .settings = ""}, &plan);
  EXPECT_EQ(exact.fits, peaks.beyond_bytes == 0);
}

TEST(DeviceEstimate, WhatOnlyReplaysNeedIsNoneOfPlains) {
  StepAllocations allocations = blocks_of_two_values();
  allocations.changes.push_back({7, 4, 40 * kMiB, true});
  allocations.changes.push_back({8, 4, 0});
  const Graph graph = two_values();
  Plan keep;
  keep.graph_fingerprint = graph.fingerprint();
  keep.budget_bytes = 1000 * kMiB;
  keep.actions.assign(graph.values.size(), Action::kKeep);
  const int64_t plain = predict_on_device(graph, allocations, kWithoutOptimizer, {}).allocated_bytes;
  EXPECT_EQ(plain, (64 + 12 + 12 + 14) * kMiB);
  EXPECT_GT(predict_on_device(graph, allocations, kWithoutOptimizer, {}, &keep).allocated_bytes, plain);
}

TEST(DeviceEstimate, WhatDoesNotSuitIsRefused) {
  const Graph graph = two_values();
  const auto message = [&](const StepAllocations& allocations, const Graph& of) -> std::string {
    try {
      predict_on_device(of, allocations, kLoop, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  StepAllocations wrong = blocks_of_two_values();
  wrong.blocks.pop_back();
  EXPECT_NE(message(wrong, graph).find("are of 2 values, and the graph has 3"), std::string::npos);
  wrong = blocks_of_two_values();
  wrong.blocks[1] = 4;
  EXPECT_NE(message(wrong, graph).find("a block that is never taken"), std::string::npos);
  wrong = blocks_of_two_values();
  wrong.changes[1].event = 9;
  EXPECT_NE(message(wrong, graph).find("not in order"), std::string::npos);
  wrong = blocks_of_two_values();
  wrong.changes[0].block = 1;
  EXPECT_NE(message(wrong, graph).find("block 1 is not taken once, in order"), std::string::npos);
  Graph unsound = graph;
  unsound.values[1].bytes = -1;
  EXPECT_NE(message(blocks_of_two_values(), unsound).find("the graph is not sound"), std::string::npos);
  const Plan plan = make_plan(graph, graph.plain_peak_bytes());
  Graph other = graph;
  other.operators[0].name = "aten::other";
  EXPECT_THROW(predict_on_device(other, blocks_of_two_values(), kLoop, {}, &plan), Error);
}

}  // namespace
}  // namespace remat::test

#include "plan/articulation.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "random_graph.h"
#include "step_builder.h"
#include "util/compute_bound.h"

namespace remat::test {
namespace {

using Values = std::vector<int32_t>;

TEST(Articulation, IsWhatAllPathsGoThrough) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 1);
  const int32_t left = step.saved({a}, 1), right = step.saved({a}, 1);
  const int32_t b = step.saved({left, right}, 1);
  const int32_t c = step.saved({b}, 1);
  step.saved({c}, 1);
  EXPECT_EQ(planners::articulation_values(step.graph()), (Values{a, b, c}));
}

TEST(Articulation, DoesNotMindWhatIsMadeFromLeavesAlone) {
  StepBuilder step;
  const int32_t mask = step.lost({0});
  const int32_t a = step.saved({0}, 1);
  const int32_t b = step.saved({a, mask}, 1);
  const int32_t c = step.saved({b, mask}, 1);
  step.saved({c}, 1);
  // The mask goes past b, but what made a comes to the end through a, or not at all; what made the mask likewise.
  EXPECT_EQ(planners::articulation_values(step.graph()), (Values{mask, a, c}));
}

TEST(Articulation, IgnoresDeadEnds) {
  StepBuilder step;
  const int32_t a = step.saved({0}, 1);
  const int32_t side = step.saved({a}, 1);
  step.saved({side}, 1);
  step.saved({a}, 1);
  EXPECT_EQ(planners::articulation_values(step.graph()), (Values{a}));
}

/// By definition: can the last operator be reached from the producer of `without`?
bool separates(const Graph& graph, int32_t without) {
  auto last = static_cast<int32_t>(graph.operators.size()) - 1;
  const auto has_producer = [&](int32_t v) { return graph.values[static_cast<size_t>(v)].producer >= 0; };
  while (last >= 0) {
    const auto& inputs = graph.operators[static_cast<size_t>(last)].inputs;
    if (std::any_of(inputs.begin(), inputs.end(), has_producer)) break;
    --last;
  }
  std::set<int32_t> reached = {last};
  bool more = true, seen_value = false;
  while (more) {
    more = false;
    for (int32_t v = 0; v < static_cast<int32_t>(graph.values.size()); ++v) {
      if (!has_producer(v)) continue;
      std::vector<int32_t> touching = {graph.values[static_cast<size_t>(v)].producer};
      for (int32_t o = 0; o < static_cast<int32_t>(graph.operators.size()); ++o) {
        const auto& inputs = graph.operators[static_cast<size_t>(o)].inputs;
        if (std::count(inputs.begin(), inputs.end(), v) > 0) touching.push_back(o);
      }
      const bool known = std::any_of(touching.begin(), touching.end(), [&](int32_t o) { return reached.count(o) > 0; });
      if (known && v == without) seen_value = true;
      if (!known || v == without) continue;
      for (const int32_t o : touching) more = reached.insert(o).second || more;
    }
  }
  return seen_value && reached.count(graph.values[static_cast<size_t>(without)].producer) == 0;
}

TEST(Articulation, AgreesWithTheDefinitionOnRandomGraphs) {
  size_t found = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Graph graph = RandomGraph(seed).make(4 + static_cast<int>(seed % 20));
    Values expected;
    for (int32_t v = 0; v < static_cast<int32_t>(graph.values.size()); ++v) {
      if (graph.values[static_cast<size_t>(v)].producer >= 0 && separates(graph, v)) expected.push_back(v);
    }
    EXPECT_EQ(planners::articulation_values(graph), expected) << seed;
    found += expected.size();
  }
  EXPECT_GT(found, 60u);
}

TEST(ArticulationMemory, KeepsSomeOfThePoints) {
  const Graph graph = plain_chain(std::vector<std::pair<int64_t, double>>(100, {1000, 1}));
  const Plan plan = make_plan(graph, 21'000, "articulation-memory");
  EXPECT_LE(plan.predicted_seconds, 100);
}

TEST(ArticulationSpeed, KeepsProductsAndConvolutions) {
  StepBuilder step;
  const int32_t product = step.saved({0}, 1000);
  step.named("aten::mm");
  const int32_t relu = step.saved({product}, 1000);
  const int32_t filtered = step.saved({relu}, 1000);
  step.named("aten::convolution");
  const int32_t attention = step.saved({filtered}, 1000);
  step.named("aten::_scaled_dot_product_flash_attention");
  step.saved({attention}, 1000);
  const Plan plan = make_plan(step.graph(), 4500, "articulation-speed");
  EXPECT_EQ(plan.actions, (std::vector<Action>{Action::kKeep, Action::kKeep, Action::kRecompute, Action::kKeep,
                                               Action::kRecompute, Action::kRecompute}));
}

TEST(Articulation, WhatIsWrittenOverAResultIsOne) {
  StepBuilder step;
  const int32_t product = step.lost({0});
  step.named("aten::mm");
  const int32_t with_bias = step.saved({product}, 1);
  step.named("aten::add_").in_place();
  const int32_t other = step.saved({with_bias}, 1);
  const auto results = planners::results_of(step.graph(), is_product);
  EXPECT_TRUE(results[static_cast<size_t>(product)]);
  EXPECT_TRUE(results[static_cast<size_t>(with_bias)]);
  EXPECT_FALSE(results[static_cast<size_t>(other)]);
  EXPECT_FALSE(results[0]);
}

}  // namespace
}  // namespace remat::test

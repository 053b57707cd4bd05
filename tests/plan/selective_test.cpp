#include <algorithm>

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "step_builder.h"

namespace remat::test {
namespace {

/// A residual block: two products, one attention, and what is cheap.
int32_t add_block(StepBuilder& step, int32_t input) {
  const int32_t norm = step.saved({input}, 1000, 0.1);
  const int32_t wide = step.saved({norm}, 1000, 10);
  step.named("aten::mm");
  const int32_t mixed = step.saved({wide}, 1000, 5);
  step.named("aten::_scaled_dot_product_flash_attention");
  const int32_t back = step.lost({mixed}, 10);
  step.named("aten::mm");
  return step.saved({input, back}, 1000, 0.1);
}

TEST(Selective, KeepsResultsOfCostlyOperatorsAndInputsOfBlocks) {
  StepBuilder step;
  int32_t last = 0;
  for (int block = 0; block < 6; ++block) last = add_block(step, last);
  const Graph graph = step.graph();
  const Plan plan = make_plan(graph, 20'000, "selective");
  for (size_t v = 0; v < plan.actions.size(); ++v) {
    const int32_t producer = graph.values[v].producer;
    if (!graph.values[v].droppable) continue;
    const bool compute_bound = graph.operators[static_cast<size_t>(producer)].seconds > 1;
    if (compute_bound) {
      EXPECT_EQ(plan.actions[v], Action::kKeep) << v;
    }
  }
  // The cheap operators run again, and no product.
  EXPECT_GT(plan.predicted_seconds, 0);
  EXPECT_LT(plan.predicted_seconds, 1);
}

}  // namespace
}  // namespace remat::test

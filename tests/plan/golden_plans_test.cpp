// Every planner's plans for a few recorded steps and two random graphs, compared with those in tests/plan/golden: a
// change to the planners that should not change plans shows here that it does not. Where it should,
// REMAT_WRITE_GOLDEN=1 writes them anew, and the difference is the change's to explain.

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <remat/error.h>
#include <remat/planner.h>

#include "brute_force.h"
#include "golden_graph.h"
#include "support/actions.h"

namespace remat::test {
namespace {

/// "auto 50%: 123456 bytes, 0.0125 s" and a letter for each value, of support/actions.h.
std::string line_of(const Graph& graph, std::string_view planner, int percent, bool refine) {
  std::string line = std::string(planner) + (refine ? " refined " : " ") + std::to_string(percent) + "%: ";
  const int64_t budget = graph.baseline_bytes + (plain_peak(graph) - graph.baseline_bytes) * percent / 100;
  try {
    const Plan plan = make_plan(graph, budget, planner, {.refine = refine});
    line += std::to_string(plan.predicted_peak_bytes) + " bytes, " + std::to_string(plan.predicted_seconds) + " s\n  ";
    line += letters(plan.actions);
  } catch (const BudgetError& error) {
    line += "none";
    if (error.smallest_known_bytes()) line += " below " + std::to_string(*error.smallest_known_bytes()) + " bytes";
  }
  return line + "\n";
}

std::string plans_of(const Graph& graph) {
  std::string text;
  for (const PlannerInfo& planner : list_planners()) {
    for (const int percent : {80, 60, 40, 20}) text += line_of(graph, planner.name, percent, false);
  }
  for (const int percent : {60, 30}) text += line_of(graph, "auto", percent, true);
  return text;
}

void expect_golden(const std::string& name, const Graph& graph) {
  ASSERT_EQ(graph.problem(), "");
  const std::string file = name + ".plans";
  const std::string plans = plans_of(graph);
  if (std::getenv("REMAT_WRITE_GOLDEN") != nullptr) std::ofstream(golden_file(file), std::ios::binary) << plans;
  EXPECT_EQ(plans, read_golden(file)) << "see the head of " << __FILE__;
}

class GoldenPlans : public testing::TestWithParam<const char*> {};

TEST_P(GoldenPlans, AreTheSame) { expect_golden(GetParam(), golden_graph(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Graphs, GoldenPlans, testing::Values("gpt", "lstm", "resnet", "unet", "random", "policies"),
                         [](const auto& graph) { return std::string(graph.param); });

}  // namespace
}  // namespace remat::test

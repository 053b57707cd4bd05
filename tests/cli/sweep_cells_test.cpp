#include "cli/sweep_cells.h"

#include <gtest/gtest.h>

#include "cli/sweep_results.h"
#include "cli/xml_problem.h"
#include "plan/sample_graph.h"
#include "plan/step_builder.h"
#include "support/expect_error.h"

namespace remat::cli {
namespace {

using test::holds;

const std::vector<std::string> kSweptBudgets = {"20%", "90%", "70%", "50%", "2%"};

TEST(SweepCellsTest, BudgetsFallAndLessMemoryIsNeverFaster) {
  const Graph graph = chain_graph(40);
  for (const PlannerInfo& info : list_planners()) {
    const auto cells = plan_budgets(graph, std::string(info.name), kSweptBudgets);
    ASSERT_EQ(cells.size(), kSweptBudgets.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      EXPECT_EQ(cells[i].name, info.name);
      if (i > 0) {
        EXPECT_LT(cells[i].budget_bytes, cells[i - 1].budget_bytes);
      }
      const auto& plan = cells[i].attempt.plan;
      if (!plan) continue;
      EXPECT_EQ(plan->problem(graph), "");
      EXPECT_LE(plan->predicted_peak_bytes, cells[i].budget_bytes);
      EXPECT_EQ(plan->budget_bytes, cells[i].budget_bytes);
      if (i == 0) continue;
      ASSERT_TRUE(cells[i - 1].attempt.plan) << info.name;
      EXPECT_GE(plan->predicted_seconds, cells[i - 1].attempt.plan->predicted_seconds) << info.name;
    }
    EXPECT_FALSE(cells.back().attempt.plan) << info.name;
  }
}

TEST(SweepCellsTest, APlanForLessTakesThePlaceOfSlowerOnesForMore) {
  const auto cell = [](int64_t budget, std::optional<double> seconds) {
    SweepCell result{.name = "p", .budget = {}, .budget_bytes = budget, .attempt = {}, .measured = {}};
    if (!seconds) return result;
    Plan& plan = result.attempt.plan.emplace();
    plan.budget_bytes = budget;
    plan.predicted_peak_bytes = budget - 1;
    plan.predicted_seconds = *seconds;
    return result;
  };
  std::vector<SweepCell> cells = {cell(100, {}), cell(90, 5), cell(80, 3), cell(70, 3), cell(60, 9), cell(50, {})};
  carry_forward(cells);
  std::vector<double> seconds;
  for (const auto& each : cells) seconds.push_back(each.attempt.plan ? each.attempt.plan->predicted_seconds : -1);
  EXPECT_EQ(seconds, (std::vector<double>{3, 3, 3, 3, 9, -1}));
  EXPECT_EQ(cells[0].attempt.plan->budget_bytes, 100);
  EXPECT_EQ(cells[1].attempt.plan->predicted_peak_bytes, 79);
  std::vector<SweepCell> none;
  carry_forward(none);
}

TEST(SweepCellsTest, WhatTheSmallestPlanNeedsIsSaidWhereThereIsNone) {
  const auto cells = plan_budgets(chain_graph(40), "auto", {"2%"});
  ASSERT_TRUE(cells[0].attempt.smallest_peak_bytes);
  EXPECT_GT(*cells[0].attempt.smallest_peak_bytes, cells[0].budget_bytes);
}

TEST(SweepCellsTest, CheckpointsArePowersOfTwoUnlessAskedFor) {
  const Graph graph = chain_graph(20);  // with 19 places between operators
  std::vector<int64_t> numbers;
  for (const auto& row : plan_checkpoints(graph, {})) numbers.push_back(row.asked);
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, 2, 4, 8, 16, 19}));
  const auto rows = plan_checkpoints(graph, {3, 1, 3, 50, 60});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].asked, 3);
  EXPECT_EQ(rows[1].places.size(), 3u);
  EXPECT_EQ(rows[2].places.size(), 19u);
  EXPECT_EQ(rows[2].longest_segment, 1);
  for (const auto& row : rows) {
    EXPECT_EQ(row.cell.attempt.plan->problem(graph), "");
    ASSERT_TRUE(row.better);
    EXPECT_LE(row.better->attempt.plan->predicted_peak_bytes, row.cell.attempt.plan->predicted_peak_bytes);
    EXPECT_LE(row.better->attempt.plan->predicted_seconds, row.cell.attempt.plan->predicted_seconds);
  }
}

TEST(SweepCellsTest, AnEmptyGraphHasNoRows) { EXPECT_TRUE(plan_checkpoints(Graph(), {}).empty()); }

// Training Deep Nets with Sublinear Memory Cost: storing all grows with the depth, checkpoints with its root.
TEST(SweepCellsTest, TheThreeStrategiesGrowAsTheyShould) {
  std::vector<std::pair<int64_t, int64_t>> all, checkpoints, none;
  for (const int64_t depth : {25, 50, 100}) {
    const Graph graph =
        test::plain_chain(std::vector<std::pair<int64_t, double>>(static_cast<size_t>(depth), {1000, 1}));
    const DepthRow row = plan_depth(graph, depth);
    ASSERT_EQ(row.cells.size(), 4u);
    const auto activation = [&](size_t i) { return row.cells[i].attempt.plan->predicted_peak_bytes; };
    EXPECT_EQ(row.cells[0].attempt.plan->predicted_seconds, 0);
    EXPECT_LT(activation(2), activation(0));
    EXPECT_LT(row.cells[2].attempt.plan->predicted_seconds, row.cells[1].attempt.plan->predicted_seconds);
    ASSERT_TRUE(row.cells[3].attempt.plan);
    EXPECT_LE(activation(3), activation(2));
    EXPECT_LE(row.cells[3].attempt.plan->predicted_seconds, row.cells[2].attempt.plan->predicted_seconds);
    all.emplace_back(depth, activation(0));
    none.emplace_back(depth, activation(1));
    checkpoints.emplace_back(depth, activation(2));
  }
  EXPECT_NEAR(*growth(all), 1, 0.01);
  EXPECT_NEAR(*growth(checkpoints), 0.5, 0.05);
  EXPECT_NEAR(*growth(none), 0, 0.01);
}

TEST(SweepCellsTest, GrowthNeedsTwoDepths) {
  EXPECT_NEAR(*growth({{2, 8}, {4, 32}, {8, 128}}), 2, 1e-9);
  EXPECT_FALSE(growth({}));
  EXPECT_FALSE(growth({{4, 8}}));
  EXPECT_FALSE(growth({{4, 8}, {4, 9}}));
  EXPECT_FALSE(growth({{4, 0}, {8, 9}}));
}

SweepResults sample_sweep() {
  const Graph graph = chain_graph(30);
  SweepResults results{.model = "bert", .batch = 2};
  results.step.emplace(graph);
  results.budgets = plan_budgets(graph, "auto", {"90%", "40%", "2%"});
  results.checkpoints = plan_checkpoints(graph, {2, 5});
  for (const int32_t depth : {10, 20}) results.depths.push_back(plan_depth(chain_graph(depth), depth));
  results.budgets[0].measured = results.checkpoints[0].cell.measured = results.depths[0].cells[0].measured =
      Measurement{3, 1 << 20, 2 << 20, 0.5, 0.25, {1.5, 1.45, 1.6}, "it rained"};
  return results;
}

TEST(SweepResultsTest, TheFileHasWhatWasMeasuredBesideWhatWasPredicted) {
  const auto json = to_json(sample_sweep());
  EXPECT_EQ(json.at("format"), "remat-sweep");
  EXPECT_EQ(json.at("complete"), false);
  const auto& cell = json.at("budgets").at(0);
  EXPECT_EQ(cell.at("budget"), "90%");
  EXPECT_LE(cell.at("activation_percent"), 90);
  EXPECT_EQ(cell.at("measured").at("peak_bytes"), 1 << 20);
  EXPECT_EQ(cell.at("measured").at("extra_percent"), 50);
  EXPECT_NEAR(cell.at("measured").at("least_extra_percent"), 45, 1e-9);
  EXPECT_NEAR(cell.at("measured").at("most_extra_percent"), 60, 1e-9);
  EXPECT_EQ(cell.at("measured").at("followed"), false);
  EXPECT_FALSE(json.at("budgets").at(2).at("within_budget"));
  EXPECT_GT(json.at("budgets").at(2).at("smallest_peak_bytes"), json.at("budgets").at(2).at("budget_bytes"));
  EXPECT_FALSE(json.at("budgets").at(1).contains("measured"));
  EXPECT_EQ(json.at("checkpoints").at(1).at("segments"), 6);
  EXPECT_EQ(json.at("depths").at(1).at("strategies").at(1).at("name"), "recompute all");
  EXPECT_NEAR(json.at("growth").at("store all"), 1, 0.2);
  EXPECT_EQ(json.at("published").at("extra_percent"), 25);
}

TEST(SweepResultsTest, TextsAndPicturesShowTheSame) {
  const auto results = sample_sweep();
  EXPECT_TRUE(holds(budgets_text(results),
                    "measured extra time, % of plain's step; ? where times vary too much to tell\nplanner   90%  40%  "
                    "2%\nauto     50.0    -   -\n"));
  EXPECT_TRUE(holds(budgets_text(results), "here:      40% of the activations alone, which is "));
  EXPECT_TRUE(holds(checkpoints_text(results), "checkpoints take the fewest bytes"));
  EXPECT_TRUE(holds(depths_text(results), "store all: the activation peak grows as depth^"));
  EXPECT_TRUE(holds(measured_text(results.budgets[0], results.step->plain, "here"), "(not by the plan: it rained)"));
  SweepCell refused = results.budgets[1];
  refused.refused = "too little";
  EXPECT_EQ(measured_text(refused, results.step->plain, "there"), "  there: could not be measured: too little\n");
  std::vector<std::string> names;
  for (const auto& [name, svg] : sweep_plots(results)) {
    names.push_back(name);
    EXPECT_EQ(test::xml_problem(svg), "") << name;
    EXPECT_TRUE(holds(svg, ", measured</text>")) << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"budgets.svg", "checkpoints.svg", "depth-memory.svg", "depth-time.svg"}));
  EXPECT_TRUE(sweep_plots({}).empty());
}

TEST(SweepResultsTest, WhatVariesTooMuchIsNoFigure) {
  auto results = sample_sweep();
  const TimesRatio varies{1.5, 0.9, 47};
  results.budgets[0].measured->times_plain = results.checkpoints[0].cell.measured->times_plain = varies;
  results.depths[0].cells[0].measured->times_plain = varies;
  const auto measured = to_json(results).at("budgets").at(0).at("measured");
  EXPECT_TRUE(measured.at("extra_percent").is_null());
  EXPECT_NEAR(measured.at("most_extra_percent"), 4600, 1e-9);
  EXPECT_TRUE(holds(budgets_text(results), "too much to tell\nplanner  90%  40%  2%\nauto       ?    -   -\n"))
      << budgets_text(results);
  const std::string text = measured_text(results.budgets[0], results.step->plain, "here");
  EXPECT_TRUE(holds(text, ", extra time -10.0 to 4600.0%: times vary too much to tell")) << text;
  EXPECT_FALSE(holds(checkpoints_text(results), "4600"));
  EXPECT_FALSE(holds(depths_text(results), "4600"));
  for (const auto& [name, svg] : sweep_plots(results)) {
    EXPECT_FALSE(holds(svg, name == "depth-time.svg" ? ", measured</text>" : "extra time, measured</text>")) << name;
  }
}

TEST(SweepResultsTest, ATimeIsToldAsFarAsItVariesLittleBesideItself) {
  const auto extra = [](TimesRatio times) { return Measurement{.times_plain = times}.extra_percent(); };
  EXPECT_NEAR(*extra({1.04, 0.98, 1.15}), 4, 1e-9);
  EXPECT_FALSE(extra({1.04, 0.98, 1.25}));
  EXPECT_NEAR(*extra({6, 4, 8}), 500, 1e-9);
  EXPECT_FALSE(extra({6, 3, 9}));
}

TEST(SweepResultsTest, ACellThatCannotBeMeasuredSaysWhyAndTheOthersAreMeasured) {
  const Graph graph = chain_graph(30);
  SweepResults results{.model = "gpt", .batch = 2};
  results.step.emplace(graph);
  results.budgets = plan_budgets(graph, "auto", {"90%", "60%", "40%"});
  for (SweepCell& cell : results.budgets) {
    ASSERT_TRUE(cell.attempt.plan);
    const auto failure = measure_cell(cell, [&](const Plan& plan) {
      if (plan.budget_bytes == results.budgets[1].budget_bytes) throw Error("[budget] no room\nbacktrace");
      return Measurement{.rounds = 3,
                         .peak_bytes = plan.predicted_peak_bytes,
                         .seconds = 1,
                         .plain_seconds = 1,
                         .times_plain = {1.25, 1.25, 1.25}};
    });
    EXPECT_EQ(failure != nullptr, &cell == &results.budgets[1]);
  }
  const auto cells = to_json(results).at("budgets");
  EXPECT_EQ(cells.at(1).at("refused"), "[budget] no room");
  EXPECT_FALSE(cells.at(1).contains("measured"));
  for (const size_t other : {0, 2}) EXPECT_EQ(cells.at(other).at("measured").at("rounds"), 3);
  EXPECT_TRUE(holds(measured_text(results.budgets[1], results.step->plain, "auto within 60%"), "[budget] no room"));
}

TEST(SweepResultsTest, SharesOfNoTimeAreNoPointsOfPictures) {
  Graph graph = chain_graph(30);  // as of the meta device
  graph.step_seconds = 0;
  SweepResults results{.model = "gpt", .batch = 2};
  results.step.emplace(graph);
  results.budgets = plan_budgets(graph, "auto", {"90%", "40%"});
  results.checkpoints = plan_checkpoints(graph, {2, 5});
  const auto plots = sweep_plots(results);
  ASSERT_EQ(plots.size(), 2u);
  EXPECT_FALSE(holds(plots[0].second, "<title>auto, budget 90%"));
  EXPECT_TRUE(holds(plots[1].second, "<title>2 checkpoints: 2.0, "));
  EXPECT_FALSE(holds(plots[1].second, "<title>auto"));
  for (const auto& [name, svg] : plots) EXPECT_EQ(test::xml_problem(svg), "") << name;
}

}  // namespace
}  // namespace remat::cli

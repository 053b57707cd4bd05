#include <stdexcept>

#include <gtest/gtest.h>

#include "cli/plan.h"
#include "plan/sample_graph.h"

namespace remat::cli {
namespace {

PlainStep sample_plain() {
  PlainStep plain(sample_graph());
  plain.baseline_bytes = 1 << 20;
  plain.peak_bytes = 5 << 20;
  plain.seconds = 2;
  return plain;
}

Attempt sample_attempt() {
  Attempt attempt;
  attempt.planner = "auto";
  attempt.plan = {
      .planner = "auto",
      .graph_fingerprint = 0,
      .budget_bytes = 3 << 20,
      .predicted_peak_bytes = (3 << 20) - (1 << 18),
      .predicted_seconds = 0.05,
      .actions = {Action::kKeep, Action::kKeep, Action::kRecompute, Action::kPack, Action::kRecomputeEachTime}};
  attempt.planning_seconds = 0.0123;
  return attempt;
}

TEST(PlanTablesTest, OnePlanFigureByFigure) {
  EXPECT_EQ(plan_table(sample_graph(), sample_plain(), sample_attempt()),
            "                          auto  of plain\n"
            "budget                3.00 MiB\n"
            "  above the baseline  2.00 MiB     50.0%\n"
            "predicted peak        2.75 MiB\n"
            "  activation peak     1.75 MiB     43.8%\n"
            "extra time             50.0 ms      2.5%\n"
            "values kept                  0\n"
            "values recomputed            1\n"
            "values held later            1\n"
            "values packed                1\n"
            "planning time          12.3 ms\n");
}

TEST(PlanTablesTest, ARowForEachPlanner) {
  Attempt too_small;
  too_small.planner = "keep-all";
  too_small.smallest_peak_bytes = 5 << 20;
  Attempt broken;
  broken.planner = "magic";
  broken.message = "[plan] no magic here";
  EXPECT_EQ(planners_table(sample_graph(), sample_plain(), 3 << 20, 0.03, {sample_attempt(), too_small, broken}),
            "budget: 3.00 MiB, 50.0% of plain's activation peak; no plan takes less than 30.0 ms there, 1.5% of the "
            "step\n"
            "planner   predicted peak  activation peak  extra time  of the step  above the least  kept  recomputed  "
            "held later  packed  planning time\n"
            "auto            2.75 MiB            43.8%     50.0 ms         2.5%             1.0%     0           1  "
            "         1       1        12.3 ms\n"
            "keep-all  needs 5.00 MiB           100.0%           -            -                -     -           -  "
            "         -       -        0.00 ms\n"
            "magic            no plan                -           -            -                -     -           -  "
            "         -       -        0.00 ms\n"
            "magic: [plan] no magic here\n");
  const auto nothing_fits = planners_table(sample_graph(), sample_plain(), 3 << 20, INFINITY, {too_small});
  EXPECT_NE(nothing_fits.find("of plain's activation peak; no plan fits it\n"), std::string::npos) << nothing_fits;
}

TEST(PlanTablesTest, ARowForEachBudgetOfACurve) {
  const Curve curve{
      "auto", {{100, 5 << 20, 5 << 20, 0, 0.001}, {50, 3 << 20, (3 << 20) - (1 << 18), 0.5, 0.0123}}, 2 << 20};
  EXPECT_EQ(curve_table(curve, sample_plain()),
            "budget     bytes  predicted peak  activation peak  extra time  of the step  planning time\n"
            "100%    5.00 MiB        5.00 MiB           100.0%     0.00 ms         0.0%        1.00 ms\n"
            "50%     3.00 MiB        2.75 MiB            43.8%      500 ms        25.0%        12.3 ms\n"
            "below: no plan of auto; its smallest needs 2.00 MiB, 25.0% of plain's activation peak\n");
}

TEST(PlanTablesTest, WhatHasNoPercentageHasADash) {
  PlainStep plain = sample_plain();
  plain.seconds = 0;
  plain.peak_bytes = plain.baseline_bytes;
  const auto text = plan_table(sample_graph(), plain, sample_attempt());
  EXPECT_NE(text.find("extra time             50.0 ms         -\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1.75 MiB         -\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace remat::cli

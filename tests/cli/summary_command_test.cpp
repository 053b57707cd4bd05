// The budget and the peaks in the summary of a run and in its JSON.
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::holds;

using SummaryCommandTest = test::TrainingFixture;

// What remat allocates for itself, here a generator's state, is no sign of a larger step, which would be measured anew.
TEST_F(SummaryCommandTest, AShareThatIsTooSmallIsRefused) {
  for (const char* budget : {"6%", "8%", "10%", "11%"}) {
    const auto outcome = run({"train", "--data", "text", "--layers", "2", "--width", "32", "--heads", "2", "--batch", "2",
                              "--seq", "16", "--steps", "6", "--budget", budget});
    EXPECT_EQ(outcome.code, 3) << budget << outcome.out;
  }
}

// AdamW's first update allocates its state, which no budget of forward and backward can prevent.
TEST_F(SummaryCommandTest, TellsTheOptimizersPeakFromThatWithinTheBudget) {
  const auto outcome = train({"--model", "mlp", "--width", "512", "--batch", "4", "--steps", "2", "--budget", "15MiB"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, " 14.1 MiB\nbudget  ")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "\noptimizer's peak  ")) << outcome.out;
  EXPECT_FALSE(holds(train({"--steps", "2"}).out, "optimizer's"));
}

// The first step of a share has no budget: what it takes is not set against the others'.
TEST_F(SummaryCommandTest, AShareHasTheBudgetOfTheStepsThatItHeldFor) {
  const auto outcome = train({"--steps", "3", "--budget", "60%", "--json", "run.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto run = json("run.json");
  const auto& last = run.at("steps").back().at("report");
  EXPECT_EQ(run.at("budget_bytes"), last.at("budget_bytes"));
  int64_t highest = 0;
  for (size_t i = 1; i < 3; ++i) {
    highest = std::max(highest, run.at("steps").at(i).at("report").at("peak_bytes").get<int64_t>());
  }
  EXPECT_LE(highest, run.at("budget_bytes").get<int64_t>());
  EXPECT_FALSE(holds(outcome.out, "optimizer's peak")) << outcome.out;
  EXPECT_EQ(train({"--steps", "1", "--budget", "60%", "--json", "run.json"}).code, 0);
  EXPECT_FALSE(json("run.json").contains("budget_bytes"));
}

}  // namespace
}  // namespace remat::cli

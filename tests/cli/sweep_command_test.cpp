// `remat sweep` as a user of the command meets it: what it finds and writes, exit codes, messages.
#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

class SweepCommandTest : public test::CommandFixture {
 protected:
  // So small that a step takes milliseconds.
  test::Outcome sweep(const Words& more, const test::Setting& setting = {}) const {
    return run(joined({"sweep", "mlp", "--width", "32", "--batch", "64", "--out", "s"}, more), setting);
  }
  nlohmann::json swept(const Words& more) const {
    const auto outcome = sweep(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json("s/sweep.json");
  }
};

// Dense(16) and Dense(32) in float32: 16 * 4 = 64 and 32 * 4 = 128 bytes for each sample, 192 together.
TEST_F(SweepCommandTest, CountsTheActivationsOfTwoDenseLayers) {
  const auto outcome = run({"sweep", "dense", "--batch", "100", "--out", "d"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out,
                    "saved for the backward pass    a step  an example\n"
                    "  aten::relu                 6.25 KiB        64 B\n"
                    "  aten::relu                 12.5 KiB       128 B\n"
                    "together                     18.8 KiB       192 B\n"));
  const auto saved = json("d/sweep.json").at("saved");
  EXPECT_EQ(saved.at("bytes"), 19200);
  EXPECT_EQ(saved.at("bytes_per_example"), 192);
  ASSERT_EQ(saved.at("values").size(), 2u);
  EXPECT_EQ(saved.at("values").at(0).at("bytes_per_example"), 64);
  EXPECT_EQ(saved.at("values").at(1).at("bytes_per_example"), 128);
}

TEST_F(SweepCommandTest, PlansForEveryPlannerAndBudget) {
  const auto found = swept({"--depth", "12", "--budgets", "80%,30%", "--checkpoints", "3,1"});
  EXPECT_EQ(found.at("complete"), true);
  EXPECT_EQ(found.at("device"), "cpu");
  EXPECT_GE(found.at("threads"), 1);
  EXPECT_FALSE(found.at("torch").get<std::string>().empty());
  EXPECT_FALSE(found.at("remat").get<std::string>().empty());
  EXPECT_EQ(found.at("sizes"), nlohmann::json::parse(R"({"batch": 64, "length": null, "depth": 12, "width": 32})"));
  EXPECT_EQ(found.at("budgets").size(), 20u);
  for (const auto& cell : found.at("budgets")) {
    if (cell.at("within_budget")) {
      EXPECT_LE(cell.at("predicted_peak_bytes"), cell.at("budget_bytes"));
    }
    EXPECT_FALSE(cell.contains("measured"));
  }
  EXPECT_EQ(found.at("checkpoints").size(), 2u);
  EXPECT_EQ(found.at("checkpoints").at(1).at("segments"), 4);
  for (const char* name : {"s/budgets.svg", "s/checkpoints.svg"}) EXPECT_TRUE(exists(name)) << name;
  EXPECT_FALSE(exists("s/depth-memory.svg"));
}

TEST_F(SweepCommandTest, MeasuresTheStepsThatWerePlanned) {
  const auto found = swept({"--depth", "12", "--budgets", "60%", "--planners", "auto,segments", "--checkpoints", "3",
                            "--measure", "--rounds", "2"});
  ASSERT_EQ(found.at("budgets").size(), 2u);
  for (const auto& cell : {found.at("budgets").at(0), found.at("budgets").at(1), found.at("checkpoints").at(0)}) {
    const auto& measured = cell.at("measured");
    EXPECT_TRUE(measured.at("followed")) << measured;
    EXPECT_EQ(measured.at("peak_bytes"), cell.at("predicted_peak_bytes"));
    EXPECT_EQ(measured.at("plain_peak_bytes"), found.at("step").at("plain_peak_bytes"));
    EXPECT_EQ(measured.at("rounds"), 2);
    EXPECT_GT(measured.at("seconds"), 0);
  }
}

TEST_F(SweepCommandTest, ShowsThreeStrategiesAgainstDepth) {
  const auto outcome = sweep({"--depths", "16,4,8,16", "--budgets", "none", "--checkpoints", "none", "--measure"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto found = json("s/sweep.json");
  EXPECT_FALSE(found.contains("step"));
  ASSERT_EQ(found.at("depths").size(), 3u);
  int64_t before = 0;
  for (const auto& row : found.at("depths")) {
    const auto& strategies = row.at("strategies");
    ASSERT_EQ(strategies.size(), 4u);
    EXPECT_GT(strategies.at(0).at("activation_bytes"), before);
    before = strategies.at(0).at("activation_bytes");
    for (const auto& cell : strategies) {
      EXPECT_TRUE(cell.at("measured").at("followed")) << cell;
      EXPECT_EQ(cell.at("measured").at("peak_bytes"), cell.at("predicted_peak_bytes")) << cell;
    }
  }
  EXPECT_TRUE(holds(outcome.out, "store all: the activation peak grows as depth^"));
  for (const char* name : {"s/depth-memory.svg", "s/depth-time.svg"}) EXPECT_TRUE(exists(name)) << name;
}

TEST_F(SweepCommandTest, AnInterruptLosesNothingThatWasMeasured) {
  const auto outcome =
      sweep({"--depth", "12", "--budgets", "60%,55%,50%,45%,40%", "--planners", "auto", "--measure", "--rounds", "30"},
            {.signal_after = "auto within 60%", .signal = SIGINT});
  EXPECT_EQ(outcome.code, 128 + SIGINT);
  const auto found = json("s/sweep.json");
  EXPECT_EQ(found.at("complete"), false);
  EXPECT_EQ(found.at("budgets").at(0).at("measured").at("rounds"), 30);
}

TEST_F(SweepCommandTest, BudgetsWithoutAnyPlanHaveTheirExitCodeAndTheRestIsThere) {
  expect_failure(sweep({"--depth", "12", "--budgets", "1%", "--planners", "auto"}), 3, "[plan] auto found no plan");
  const auto found = json("s/sweep.json");
  EXPECT_EQ(found.at("complete"), true);
  EXPECT_FALSE(found.at("checkpoints").empty());
  EXPECT_EQ(sweep({"--depth", "12", "--budgets", "1%,90%", "--planners", "segments"}).code, 0);
}

TEST_F(SweepCommandTest, WhatCannotBeHasItsExitCode) {
  directory_.write("file", "");
  expect_failure(sweep({"--budgets", "50%,lots"}), 2, "\"lots\"");
  expect_failure(run({"sweep", "dense", "--out", "file"}), 1, "[out] 'file' cannot be a directory");
}

}  // namespace
}  // namespace remat::cli

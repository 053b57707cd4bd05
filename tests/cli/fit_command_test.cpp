// `remat fit` as a user of the command meets it: what it finds, exit codes, messages.
#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

class FitCommandTest : public test::CommandFixture {
 protected:
  // So small that a step takes milliseconds.
  test::Outcome fit(const Words& more) const {
    return run(joined({"fit", "mlp", "--width", "64", "--budget", "60%", "--json", "j.json"}, more));
  }

  nlohmann::json found(const Words& more) const {
    const auto outcome = fit(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json("j.json");
  }
};

int64_t size_of(const nlohmann::json& point) { return point.at("size").get<int64_t>(); }

TEST_F(FitCommandTest, FindsTheLargestBatchAndMeasuresIt) {
  const Words more = {"--depth", "12", "--batch", "128"};
  const auto ours = found(joined(more, {"--effective-batch", "192"}));
  EXPECT_GT(size_of(ours.at("largest")), size_of(ours.at("plain")));
  for (const char* name : {"plain", "largest", "worthwhile"}) {
    EXPECT_TRUE(ours.at(name).at("measured")) << name;
    EXPECT_LE(ours.at(name).at("peak_bytes"), ours.at("budget_bytes")) << name;
  }
  EXPECT_EQ(ours.at("split").at("steps").get<int64_t>() * size_of(ours.at("split").at("step")), 192);
}

TEST_F(FitCommandTest, SaysWhatItFoundInWords) {
  const auto outcome = fit({"--depth", "12", "--batch", "128"});
  EXPECT_TRUE(holds(outcome.out, "mlp: the largest batch within "));
  EXPECT_TRUE(holds(outcome.out, "plain, largest"));
  EXPECT_TRUE(holds(outcome.out, "With remat the batch can be "));
}

TEST_F(FitCommandTest, SaysWhatADiskBuys) {
  const auto outcome = fit({"--depth", "12", "--batch", "256", "--disk", "64MiB:."});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "without the disk\n"));
  EXPECT_TRUE(holds(outcome.out, "The disk makes ")) << outcome.out;
  const auto ours = json("j.json");
  EXPECT_GE(size_of(ours.at("largest")), size_of(ours.at("without_disk").at("largest")));
  EXPECT_LE(ours.at("largest").at("peak_bytes"), ours.at("budget_bytes"));
}

TEST_F(FitCommandTest, AlongTheDepthEachSizeIsAnotherModel) {
  const auto ours = found({"--depth", "20", "--batch", "64", "--along", "depth"});
  EXPECT_GT(size_of(ours.at("largest")), size_of(ours.at("plain")));
  EXPECT_FALSE(ours.at("same_operators"));
  EXPECT_LE(ours.at("largest").at("peak_bytes"), ours.at("budget_bytes"));
}

TEST_F(FitCommandTest, PredictionRunsSmallStepsAlone) {
  const auto ours = found({"--depth", "12", "--batch", "128", "--predict"});
  EXPECT_FALSE(ours.at("largest").at("measured"));
  for (const auto& step : ours.at("runs")) EXPECT_LE(4 * size_of(step), size_of(ours.at("plain")));
}

TEST_F(FitCommandTest, WhatCannotBeHasItsExitCode) {
  expect_failure(fit({"--budget", "100kB"}), 3, "[fit] no batch fits: a step of 1 needs about ");
  expect_failure(run({"fit", "unet", "--along", "depth"}), 2, "[options] unet has no depth that could be another");
  expect_failure(run({"fit", "gpt", "--width", "20"}), 2, "--width 20 is no multiple of 8");
  expect_failure(run({"fit", "gpt", "--along", "width", "--most", "7"}), 2, "--most 7 is less than 8");
  expect_failure(fit({"--along", "depth", "--effective-batch", "8"}), 2, "--effective-batch has no meaning");
  expect_failure(fit({"--head", "tiles"}), 2, "--head tiles is for models that predict words (gpt, moe), and mlp is none");
  expect_failure(fit({"--disk", "."}), 2, "--disk: \".\" has no colon; give bytes and a directory");
  expect_failure(fit({"--along", "hight"}), 2, "'hight' is none of batch, length, depth, width");
}

}  // namespace
}  // namespace remat::cli

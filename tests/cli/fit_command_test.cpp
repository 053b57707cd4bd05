// `remat fit` as a user of the command meets it: what it finds, exit codes, messages.
#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;
using Words = std::vector<std::string>;

class FitCommandTest : public test::CommandFixture {
 protected:
  // A GPT so small that a step takes milliseconds.
  test::Outcome fit(const Words& more) const {
    Words words = {"fit", "gpt", "--length", "64", "--width", "64"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST_F(FitCommandTest, FindsTheLargestBatchAndMeasuresIt) {
  const auto outcome = fit({"--depth", "2", "--budget", "100%", "--effective-batch", "12", "--json", "j.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "gpt: the largest batch within "));
  EXPECT_TRUE(holds(outcome.out, "plain, largest"));
  EXPECT_TRUE(holds(outcome.out, "A batch of 12 is fastest "));
  const auto found = json("j.json");
  EXPECT_EQ(found.at("plain").at("size"), 8);  // the usual, whose peak is the budget
  EXPECT_GT(found.at("largest").at("size"), 8);
  for (const char* name : {"plain", "largest", "worthwhile"}) {
    EXPECT_TRUE(found.at(name).at("measured")) << name;
    EXPECT_LE(found.at(name).at("peak_bytes"), found.at("budget_bytes")) << name;
  }
  EXPECT_EQ(found.at("split").at("steps").get<int>() * found.at("split").at("step").at("size").get<int>(), 12);
}

TEST_F(FitCommandTest, AlongTheDepthEachSizeIsAnotherModel) {
  const auto outcome = fit({"--depth", "4", "--along", "depth", "--budget", "100%", "--json", "j.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto found = json("j.json");
  EXPECT_EQ(found.at("plain").at("size"), 4);
  EXPECT_FALSE(found.at("same_operators"));
  EXPECT_LE(found.at("largest").at("peak_bytes"), found.at("budget_bytes"));
}

TEST_F(FitCommandTest, PredictionRunsSmallStepsAlone) {
  const auto outcome = fit({"--depth", "2", "--batch", "32", "--budget", "100%", "--predict", "--json", "j.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto found = json("j.json");
  EXPECT_EQ(found.at("plain").at("size"), 32);
  EXPECT_FALSE(found.at("largest").at("measured"));
  for (const auto& run : found.at("runs")) EXPECT_LE(run.at("size"), 8);
}

TEST_F(FitCommandTest, WhatCannotBeHasItsExitCode) {
  expect_failure(fit({"--budget", "100kB"}), 3, "[fit] no batch fits: a step of 1 needs about ");
  expect_failure(run({"fit", "unet", "--along", "depth"}), 2, "[options] unet has no depth that could be another");
  expect_failure(run({"fit", "gpt", "--width", "20"}), 2, "--width 20 is no multiple of 8");
  expect_failure(fit({"--along", "width", "--most", "7"}), 2, "--most 7 is less than 8");
  expect_failure(fit({"--along", "depth", "--effective-batch", "8"}), 2, "--effective-batch has no meaning");
  expect_failure(fit({"--along", "hight"}), 2, "'hight' is none of batch, length, depth, width");
}

}  // namespace
}  // namespace remat::cli

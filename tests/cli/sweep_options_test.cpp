#include "cli/sweep_options.h"

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "cli/sweep.h"
#include "cli/usage_error.h"
#include "support/expect_error.h"

namespace remat::cli {
namespace {

using test::holds;
using test::usage_error_of;

SweepSettings sweep_settings(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"sweep", "mlp"};
  words.insert(words.end(), more.begin(), more.end());
  const Command command = parse_options(words);
  EXPECT_EQ(command.kind, Command::Kind::kSweep);
  return command.sweep;
}

std::string sweep_error(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"sweep", model};
  words.insert(words.end(), more.begin(), more.end());
  return usage_error_of(words);
}

TEST(SweepOptionsTest, AllPlannersAndNineBudgetsUnlessToldOtherwise) {
  const auto lists = sweep_lists(sweep_settings({}));
  EXPECT_EQ(lists.planners.size(), list_planners().size());
  EXPECT_EQ(lists.budgets.size(), 9u);
  EXPECT_TRUE(lists.checkpoints.empty());
  EXPECT_TRUE(lists.depths.empty());
}

TEST(SweepOptionsTest, ListsAreReadAndHaveEachItemOnce) {
  const auto settings =
      sweep_settings({"--budgets", "2GiB,40%,40%", "--planners", "auto,rotor,auto", "--checkpoints", "010,2,2",
                      "--depths", "8,4", "--measure", "--rounds", "3", "--batch", "5", "--out", "d"});
  const auto lists = sweep_lists(settings);
  EXPECT_EQ(lists.budgets, (std::vector<std::string>{"2GiB", "40%"}));
  EXPECT_EQ(lists.planners, (std::vector<std::string>{"auto", "rotor"}));
  EXPECT_EQ(lists.checkpoints, (std::vector<int64_t>{2, 10}));
  EXPECT_EQ(lists.depths, (std::vector<int64_t>{4, 8}));
  EXPECT_TRUE(settings.measure);
  EXPECT_EQ(settings.rounds, 3);
  EXPECT_EQ(settings.batch, 5);
  EXPECT_EQ(settings.out, "d");
  EXPECT_TRUE(sweep_lists(sweep_settings({"--budgets", "none"})).budgets.empty());
}

TEST(SweepOptionsTest, NonsenseIsAUsageErrorThatNamesIt) {
  EXPECT_TRUE(holds(usage_error_of({"sweep"}), "MODEL is required; see: remat sweep --help"));
  EXPECT_TRUE(holds(sweep_error("rnn", {}), "'rnn' is none of bert, "));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--budgets", "50%,lots"}), "--budgets: \"lots\""));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--budgets", "50%,"}), "--budgets: "));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--budgets", "40"}), "--budgets: "));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--budgets", "device"}), "'device' is no budget to plan for; give bytes"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--planners", "auto,revolv"}), "did you mean revolve?"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--checkpoints", "4,0"}), "'0' is not a number from 1"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--depths", "4,x"}), "'x' is not a number from 1"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--depths", ""}), "--depths"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--depths", "4", "--depth", "8"}), "--depths has the depths and --depth"));
  EXPECT_TRUE(
      holds(sweep_error("unet", {"--depths", "4"}), "unet has no depth that could be another; leave out --depths"));
  EXPECT_TRUE(holds(sweep_error("gpt", {"--width", "20"}), "--width 20 is no multiple of 8"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--rounds", "9"}), "--rounds has no effect without --measure"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--measure", "--rounds", "0"}), "--rounds"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--budgets", "none", "--checkpoints", "none"}), "nothing is left to sweep"));
  EXPECT_TRUE(holds(sweep_error("mlp", {"--out", ""}), "the path is empty"));
}

TEST(SweepOptionsTest, TheHelpHasEveryOption) {
  const auto help = parse_options({"sweep", "--help"}).text;
  for (const auto* option :
       {"MODEL", "--budgets", "--planners", "--checkpoints", "--depths", "--measure", "--rounds", "--batch", "--length",
        "--depth ", "--width", "--out", "Exit codes", "dense: two layers"}) {
    EXPECT_TRUE(holds(help, option));
  }
}

}  // namespace
}  // namespace remat::cli

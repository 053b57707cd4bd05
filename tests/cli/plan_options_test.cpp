#include "cli/plan_options.h"

#include <gtest/gtest.h>

#include <remat/planner.h>

#include "cli/options.h"
#include "cli/usage_error.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::cli {
namespace {

using test::holds;
using test::usage_error_of;

TEST(PlanOptionsTest, RecordHasDefaults) {
  const auto command = parse_options({"record", "mlp", "--out", "g.json"});
  EXPECT_EQ(command.kind, Command::Kind::kRecord);
  EXPECT_EQ(command.record.model, "mlp");
  EXPECT_EQ(command.record.out, "g.json");
  EXPECT_EQ(command.record.steps, 3);
  EXPECT_EQ(command.record.batch, 0);
  EXPECT_EQ(command.record.budget, "device");
}

TEST(PlanOptionsTest, EveryOptionOfRecordArrives) {
  const auto record =
      parse_options({"record", "--steps", "5", "--batch", "7", "--budget", "40%", "--out", "g", "gpt"}).record;
  EXPECT_EQ(record.model, "gpt");
  EXPECT_EQ(record.steps, 5);
  EXPECT_EQ(record.batch, 7);
  EXPECT_EQ(record.budget, "40%");
}

TEST(PlanOptionsTest, PlanHasDefaults) {
  const auto command = parse_options({"plan", "g.json"});
  EXPECT_EQ(command.kind, Command::Kind::kPlan);
  EXPECT_EQ(command.plan.graph, "g.json");
  EXPECT_EQ(command.plan.budget, "");
  EXPECT_EQ(command.plan.planner, "auto");
  EXPECT_TRUE(command.plan.pack);
  EXPECT_FALSE(command.plan.all);
  EXPECT_EQ(command.plan.out + command.plan.curve + command.plan.json, "");
}

TEST(PlanOptionsTest, EveryOptionOfPlanArrives) {
  const auto plan = parse_options({"plan", "g.json", "--budget", "2GiB", "--planner", "drop-all", "--no-pack", "--all",
                                   "--out", "p.json", "--curve", "c.svg", "--json", "j.json"})
                        .plan;
  EXPECT_EQ(plan.budget, "2GiB");
  EXPECT_EQ(plan.planner, "drop-all");
  EXPECT_FALSE(plan.pack);
  EXPECT_TRUE(plan.all);
  EXPECT_EQ(plan.out, "p.json");
  EXPECT_EQ(plan.curve, "c.svg");
  EXPECT_EQ(plan.json, "j.json");
}

TEST(PlanOptionsTest, EveryPlannerInTheListIsTaken) {
  for (const auto& planner : list_planners()) {
    EXPECT_EQ(parse_options({"plan", "g", "--planner", std::string(planner.name)}).plan.planner, planner.name);
  }
}

TEST(PlanOptionsTest, NonsenseIsAUsageErrorThatNamesIt) {
  EXPECT_TRUE(holds(usage_error_of({"record"}), "MODEL is required; see: remat record --help"));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp"}), "--out is required"));
  EXPECT_TRUE(holds(usage_error_of({"record", "rnn", "--out", "g"}),
                    "'rnn' is none of bert, deep, dense, efficientnet, gpt, lstm, mlp, moe, resnet, unet, vit; see: "
                    "remat record --help"));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp", "--out", "g", "--steps", "0"}), "--steps"));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp", "--out", "g", "--batch", "0"}), "--batch"));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp", "--out", "g", "--budget", "lots"}), "\"lots\""));
  EXPECT_TRUE(holds(usage_error_of({"record", "mlp", "gpt", "--out", "g"}), "gpt"));

  EXPECT_TRUE(holds(usage_error_of({"plan"}), "GRAPH is required; see: remat plan --help"));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "h"}), "h"));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--planner", "magic"}), "'magic' is none of auto, "));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--budget", "140%"}), "140"));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--budget", "device"}), "[options] --budget device means nothing"));
  EXPECT_TRUE(
      holds(usage_error_of({"plan", "g", "--curve", "c.png"}), "[options] --curve 'c.png' is no .json or .svg"));
  EXPECT_TRUE(holds(usage_error_of({"plan", "g", "--curve", "json"}), "[options] --curve 'json' is no .json or .svg"));
}

TEST(PlanOptionsTest, NoFileIsWrittenTwiceOrOverTheGraph) {
  const test::TemporaryDirectory directory;
  const auto graph = directory.write("g.json", "");
  EXPECT_TRUE(holds(
      usage_error_of({"plan", graph, "--out",
                      directory.path("../") +
                          std::filesystem::path(directory.path("")).parent_path().filename().string() + "/g.json"}),
      "[options] the graph and --out are the same file"));
  EXPECT_TRUE(holds(usage_error_of({"plan", graph, "--curve", "x/c.json", "--json", "./x/c.json"}),
                    "[options] --curve and --json are the same file './x/c.json'; give another path"));
  EXPECT_EQ(usage_error_of({"plan", graph, "--out", "/dev/null", "--json", "/dev/null"}), "(no usage error)");
}

TEST(PlanOptionsTest, TheHelpHasEveryOption) {
  const auto record = parse_options({"record", "--help"}).text;
  for (const auto* option :
       {"MODEL", "--out", "--batch", "--steps", "--budget", "Exit codes", "resnet: ResNet-50", "mlp: 2048"}) {
    EXPECT_TRUE(holds(record, option));
  }
  const auto plan = parse_options({"plan", "--help"}).text;
  for (const auto* option : {"GRAPH", "--budget", "--planner", "keep-all: nothing is dropped", "--no-pack", "--all",
                             "--out", "--curve", "--json"}) {
    EXPECT_TRUE(holds(plan, option));
  }
}

}  // namespace
}  // namespace remat::cli

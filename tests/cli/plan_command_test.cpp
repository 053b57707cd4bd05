// Recording and planning as a user of the command meets them: exit codes, messages, files.
#include <remat/graph.h>
#include <remat/plan.h>
#include <remat/planner.h>
#include <remat/run.h>

#include "cli/command_fixture.h"
#include "cli/xml_problem.h"
#include "plan/sample_graph.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;
using test::Outcome;
using test::read_all;
using test::Setting;

class PlanCommandTest : public test::CommandFixture {
 protected:
  PlanCommandTest() { directory_.write("g.json", to_json(graph_)); }

  Outcome plan(const Words& more, const Setting& setting = {}) const {
    return run(joined({"plan", "g.json"}, more), setting);
  }

  Plan written_plan(const std::string& name) const { return plan_from_json(read_all(directory_.path(name))); }

  Graph graph_ = chain_graph(40);
};

TEST_F(PlanCommandTest, PlansHalfOfTheActivationsUnasked) {
  const auto outcome = plan({});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(holds(outcome.out, "g.json: 40 operators, 40 values to decide on; plain takes "));
  EXPECT_TRUE(holds(outcome.out, "50.0%\n"));
  EXPECT_TRUE(holds(outcome.out, "planning time"));
}

TEST_F(PlanCommandTest, ARunHasAGraphToPlanFor) {
  directory_.write("r.json", to_json(remat::Run{.graph = graph_}));
  EXPECT_EQ(plan({"--out", "p.json"}).code, 0);
  const auto of_graph = read_all(directory_.path("p.json"));
  const auto outcome = run({"plan", "r.json", "--out", "p.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_all(directory_.path("p.json")), of_graph);
}

TEST_F(PlanCommandTest, WritesAPlanForTheGraphWithinTheBudget) {
  EXPECT_EQ(plan({"--budget", "60%", "--out", "p.json", "--json", "j.json"}).code, 0);
  const auto written = written_plan("p.json");
  EXPECT_EQ(written.problem(graph_), "");
  EXPECT_LE(written.predicted_peak_bytes, written.budget_bytes);
  const auto result = json("j.json");
  EXPECT_EQ(result.at("budget_bytes"), written.budget_bytes);
  const auto figures = result.at("plans").at(0);
  EXPECT_EQ(result.at("plans").size(), 1u);
  EXPECT_EQ(figures.at("predicted_peak_bytes"), written.predicted_peak_bytes);
  EXPECT_EQ(figures.at("predicted_seconds"), written.predicted_seconds);
  EXPECT_TRUE(figures.at("within_budget"));
  const int64_t baseline = result.at("baseline_bytes"), peak = result.at("plain_peak_bytes");
  EXPECT_EQ(result.at("budget_bytes"), baseline + (peak - baseline) * 60 / 100);
}

TEST_F(PlanCommandTest, ABudgetInBytesCountsEverything) {
  graph_.baseline_bytes = 1 << 20;
  directory_.write("g.json", to_json(graph_));
  EXPECT_EQ(plan({"--budget", "1180000", "--out", "p.json"}).code, 0);
  EXPECT_EQ(written_plan("p.json").budget_bytes, 1180000);
  EXPECT_LE(written_plan("p.json").predicted_peak_bytes, 1180000);
}

TEST_F(PlanCommandTest, PackingCanBeForbidden) {
  directory_.write("g.json", to_json(chain_graph(20)));
  EXPECT_EQ(plan({"--budget", "70%", "--out", "p.json"}).code, 0);
  EXPECT_GT(std::ranges::count(written_plan("p.json").actions, Action::kPack), 0);
  EXPECT_EQ(plan({"--budget", "70%", "--out", "p.json", "--no-pack"}).code, 0);
  EXPECT_EQ(std::ranges::count(written_plan("p.json").actions, Action::kPack), 0);
}

TEST_F(PlanCommandTest, ABudgetThatIsTooSmallHasItsOwnCodeAndNamesTheSmallest) {
  const auto outcome = plan({"--budget", "1%", "--out", "p.json"});
  expect_failure(outcome, 3, "[plan] auto found no plan within ");
  EXPECT_TRUE(holds(outcome.err, "its smallest needs "));
  EXPECT_FALSE(exists("p.json"));
  expect_failure(plan({"--budget", "99%", "--planner", "keep-all"}), 3, "[plan] keep-all found no plan");
}

TEST_F(PlanCommandTest, WhatElseWasAskedForIsWrittenWhereTheBudgetIsTooSmall) {
  expect_failure(plan({"--budget", "1%", "--json", "j.json", "--curve", "c.json"}), 3, "[plan] auto found no plan");
  EXPECT_GT(json("j.json").at("plans").at(0).at("smallest_peak_bytes"), 0);
  EXPECT_TRUE(json("j.json").at("least_seconds").is_null());
  EXPECT_GT(json("c.json").at("points").size(), 5u);
}

TEST_F(PlanCommandTest, AllPlannersAreCompared) {
  const auto outcome = plan({"--budget", "60%", "--all", "--json", "j.json", "--out", "p.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const auto& planner : list_planners())
    EXPECT_TRUE(holds(outcome.out, std::string("\n").append(planner.name) + " "));
  EXPECT_TRUE(holds(outcome.out, "needs "));
  EXPECT_EQ(written_plan("p.json").planner, "auto");
  const auto plans = json("j.json").at("plans");
  EXPECT_GT(json("j.json").at("least_seconds"), 0);
  EXPECT_LE(json("j.json").at("least_seconds"), plans.at(0).at("predicted_seconds"));
  ASSERT_EQ(plans.size(), list_planners().size());
  EXPECT_EQ(plans.at(1).at("planner"), "keep-all");
  EXPECT_FALSE(plans.at(1).at("within_budget"));
  EXPECT_EQ(plans.at(1).at("smallest_peak_bytes"), json("j.json").at("plain_peak_bytes"));
}

TEST_F(PlanCommandTest, ThePlannerAskedForDecidesTheCodeOfAll) {
  const auto outcome = plan({"--budget", "60%", "--all", "--planner", "keep-all", "--json", "j.json"});
  expect_failure(outcome, 3, "[plan] keep-all found no plan");
  EXPECT_TRUE(holds(outcome.out, "\ndrop-all "));
  EXPECT_TRUE(json("j.json").at("plans").at(0).at("within_budget"));
}

TEST_F(PlanCommandTest, WritesACurveAsJson) {
  const auto outcome = plan({"--curve", "c.json", "--json", "j.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "\n100% "));
  EXPECT_TRUE(holds(outcome.out, "below: no plan of auto; its smallest needs "));
  const auto points = json("c.json").at("points");
  EXPECT_GT(json("c.json").at("smallest_peak_bytes"), 0);
  EXPECT_EQ(json("c.json").at("smallest_peak_bytes"), json("j.json").at("smallest_peak_bytes"));
  ASSERT_GT(points.size(), 5u);
  EXPECT_EQ(points.at(0).at("percent"), 100);
  EXPECT_EQ(points.at(0).at("extra_percent"), 0);
  EXPECT_EQ(points.at(1).at("percent"), 95);
  EXPECT_EQ(json("j.json").at("curve"), points);
  EXPECT_FALSE(json("j.json").contains("plans"));
}

TEST_F(PlanCommandTest, WritesACurveAsAPicture) {
  std::filesystem::create_directory(directory_.path("d"));
  directory_.write("d/a<b>&\xff.json", to_json(graph_));
  const auto outcome = run({"plan", "d/a<b>&\xff.json", "--curve", "c.svg", "--json", "j.json", "--budget", "60%"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto svg = read_all(directory_.path("c.svg"));
  EXPECT_EQ(test::xml_problem(svg), "");
  EXPECT_TRUE(holds(svg, "<title>a&lt;b&gt;&amp;\xef\xbf\xbd.json, planner auto</title>"));
  EXPECT_TRUE(holds(svg, "<title>budget 100%: activation peak 100.0%"));
  EXPECT_EQ(json("j.json").at("plans").size(), 1u);
}

TEST_F(PlanCommandTest, AnInterruptEndsACurve) {
  directory_.write("g.json", to_json(chain_graph(300)));
  const auto outcome = plan({"--curve", "c.json"}, {.signal_after = "values to decide on", .signal = SIGINT});
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.err, "");
  EXPECT_FALSE(exists("c.json"));
}

TEST_F(PlanCommandTest, FilesThatAreNoGraphAreNamed) {
  expect_failure(run({"plan", "nowhere"}), 1, "[graph] cannot read 'nowhere' (No such file or directory)");
  expect_failure(run({"plan", "."}), 1, "[graph] '.' is a directory");
  directory_.write("bad.json", to_json(graph_).substr(0, 500));
  expect_failure(run({"plan", "bad.json"}), 1, "[graph] 'bad.json': no JSON at line ");
  directory_.write("bad.json", "{}");
  expect_failure(run({"plan", "bad.json"}), 1, "[graph] 'bad.json': ");
  expect_failure(run({"plan", "/dev/zero"}), 1, "[graph] '/dev/zero' is a device, not a file; give the file that ");
  std::filesystem::resize_file(directory_.path("bad.json"), (int64_t{1} << 30) + 1);
  expect_failure(run({"plan", "bad.json"}), 1,
                 "[graph] 'bad.json' has 1.00 GiB (1073741825 bytes), more than 1.00 GiB (1073741824 bytes); give");
}

TEST_F(PlanCommandTest, AStepWithoutATimeHasNoPercentages) {
  graph_.step_seconds = 0;
  directory_.write("g.json", to_json(graph_));
  expect_failure(plan({"--curve", "c.svg"}), 1, "[curve] ");
  EXPECT_EQ(plan({"--json", "j.json"}).code, 0);
  EXPECT_TRUE(json("j.json").at("plans").at(0).at("extra_percent").is_null());
}

TEST_F(PlanCommandTest, PathsThatCannotBeWrittenAreFoundBeforePlanning) {
  for (const auto* option : {"out", "curve", "json"}) {
    const auto outcome = plan({std::string("--") + option, "no/such.json"});
    expect_failure(outcome, 1, std::string("[") + option + "] cannot write 'no/such.json'");
    EXPECT_EQ(outcome.out, "");
  }
  expect_failure(plan({"--out", "/dev/full"}), 1, "[out] cannot write '/dev/full' (No space left");
  const auto before = read_all(directory_.path("g.json"));
  expect_failure(plan({"--out", "g.json"}), 2, "the graph and --out are the same file");
  EXPECT_EQ(read_all(directory_.path("g.json")), before);
}

TEST_F(PlanCommandTest, PathsThatCannotBeWrittenAreFoundBeforeRecording) {
  // The budget would be found too small by the first step.
  expect_failure(run({"record", "mlp", "--batch", "1", "--budget", "1MB", "--out", "no/r.json"}), 1,
                 "[out] cannot write 'no/r.json'");
}

TEST_F(PlanCommandTest, WrongUsageHasItsOwnCode) {
  expect_failure(run({"plan"}), 2, "GRAPH is required; see: remat plan --help");
  expect_failure(plan({"--budget", "lots"}), 2, "lots");
  expect_failure(plan({"--budget", "device"}), 2, "--budget device");
  expect_failure(plan({"--planner", "magic"}), 2, "--planner");
  expect_failure(plan({"--curve", "c.png"}), 2, "'c.png' is no .json or .svg");
  expect_failure(run({"record", "rnn", "--out", "r.json"}), 2, "rnn");
  expect_failure(run({"record", "mlp"}), 2, "--out is required; see: remat record --help");
  expect_failure(run({"record", "mlp", "--out", "r.json", "--save-run", "./r.json"}), 2, "--save-run");
}

TEST_F(PlanCommandTest, WhatIsRecordedCanBePlanned) {
  const auto recorded = run({"record", "mlp", "--batch", "64", "--steps", "1", "--out", "r.json"});
  EXPECT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_EQ(recorded.err, "");
  EXPECT_TRUE(holds(recorded.out, "mlp: 1 step of batch 64, budget device limit; the graph is in r.json\n"));
  for (const auto* row : {"\noperators ", "\nsaved values ", "\nbaseline ", "\nactivation peak ", "\ntime per step "}) {
    EXPECT_TRUE(holds(recorded.out, row));
  }
  EXPECT_EQ(directory_.names(), (Words{"g.json", "r.json"}));
  const auto graph = graph_from_json(read_all(directory_.path("r.json")));
  EXPECT_EQ(run({"plan", "r.json", "--budget", "60%", "--out", "p.json"}).code, 0);
  EXPECT_EQ(written_plan("p.json").problem(graph), "");
}

TEST_F(PlanCommandTest, WhatIsRecordedHasLayersForReports) {
  const Words options = {"record", "mlp", "--batch", "64", "--steps", "1", "--out", "g2.json", "--save-run", "r.json"};
  EXPECT_EQ(run(options).code, 0);
  const auto recorded = run_from_json(read_all(directory_.path("r.json")));
  EXPECT_EQ(recorded.name, "mlp");
  EXPECT_EQ(to_json(recorded.graph), read_all(directory_.path("g2.json")));
  EXPECT_EQ(std::ranges::count(recorded.layers, "linear7"), 2);  // a product, and the activation after it
  EXPECT_EQ(run({"report", "r.json"}).code, 0);
  EXPECT_TRUE(holds(read_all(directory_.path("r.html")), "\"linear7\""));
}

TEST_F(PlanCommandTest, RecordingWithinTooSmallABudgetWritesNothing) {
  expect_failure(run({"record", "mlp", "--batch", "1", "--steps", "1", "--budget", "1MB", "--out", "r.json"}), 3, "[");
  EXPECT_FALSE(exists("r.json"));
}

}  // namespace
}  // namespace remat::cli

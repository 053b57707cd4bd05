// Reports as a user of the command meets them: exit codes, messages, files.
#include <remat/graph.h>
#include <remat/plan.h>
#include <remat/planner.h>
#include <remat/run.h>

#include "cli/command_fixture.h"
#include "plan/sample_graph.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;
using test::Outcome;
using test::read_all;

class ReportCommandTest : public test::TrainingFixture {
 protected:
  ReportCommandTest() { directory_.write("g.json", to_json(graph_)); }

  Outcome report(const Words& more) const { return run(joined({"report"}, more)); }
  std::string written(const std::string& name) const { return read_all(directory_.path(name)); }

  Graph graph_ = chain_graph(40);
};

TEST_F(ReportCommandTest, WritesAPageBesideAGraphUnasked) {
  const auto outcome = report({"g.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "the page is in g.html\n"));
  EXPECT_TRUE(holds(written("g.html"), "<!DOCTYPE html>"));
}

TEST_F(ReportCommandTest, ShowsTheLeastThatWorksWhereHalfDoesNot) {
  Graph graph = chain_graph(3);
  directory_.write("small.json", to_json(graph));
  const auto outcome = report({"small.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "remat: no plan keeps this step within 50%; here is one for ")) << outcome.err;
  EXPECT_TRUE(holds(written("small.html"), "<!DOCTYPE html>"));
  expect_failure(report({"small.json", "--budget", "50%"}), 3, "[plan] auto found no plan within");
}

TEST_F(ReportCommandTest, WritesWhatIsAskedFor) {
  const auto outcome = report({"g.json", "--budget", "60%", "--svg", "p.svg", "--trace", "t.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(exists("g.html"));
  EXPECT_TRUE(holds(written("p.svg"), "<svg "));
  EXPECT_TRUE(json("t.json").contains("traceEvents"));
}

TEST_F(ReportCommandTest, ShowsThePlanThatIsGiven) {
  const Plan plan = make_plan(graph_, 1 << 20, "drop-all");
  directory_.write("p.json", to_json(plan));
  EXPECT_EQ(report({"g.json", "--plan", "p.json"}).code, 0);
  EXPECT_TRUE(holds(written("g.html"), "\"decided\":\"drop-all\""));
  directory_.write("p.json", to_json(make_plan(chain_graph(41), 1 << 30)));
  expect_failure(report({"g.json", "--plan", "p.json"}), 1, "[plan] 'p.json' does not suit the step in 'g.json'");
}

TEST_F(ReportCommandTest, ShowsWhatATrainingMeasured) {
  const auto trained = train({"--steps", "4", "--budget", "50%", "--save-run", "r.json"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto step = run_from_json(written("r.json"));
  ASSERT_TRUE(step.plan && step.report);
  EXPECT_EQ(step.report->step, 4);
  EXPECT_LE(step.report->peak_bytes, step.report->budget_bytes);
  EXPECT_GT(std::ranges::count(step.layers, "block0.norm1"), 0);
  const auto outcome = report({"r.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* figure : {"measured peak", "planned extra time", "measured extra time"}) {
    EXPECT_TRUE(holds(outcome.out, figure)) << figure;
  }
  EXPECT_TRUE(exists("r.html"));
  // What was measured is not that of another budget.
  EXPECT_EQ(report({"r.json", "--budget", "70%"}).out.find("measured"), std::string::npos);
}

TEST_F(ReportCommandTest, OfAStepThatFollowedNoPlanShowsPlain) {
  ASSERT_EQ(train({"--steps", "1", "--budget", "1GiB", "--save-run", "r.json"}).code, 0);
  EXPECT_FALSE(run_from_json(written("r.json")).plan);
  EXPECT_EQ(report({"r.json"}).code, 0);
  EXPECT_TRUE(holds(written("r.html"), "\"step\":null"));
}

TEST_F(ReportCommandTest, PrintsWhatBecameOfEachLayer) {
  directory_.write("g.html", "precious");
  remat::Run step{.name = "net", .graph = graph_};
  for (int op = 0; op < 40; ++op) step.layers.push_back(op < 39 ? "blocks." + std::to_string(op % 3) : "\x1b[2J");
  directory_.write("run.json", to_json(step));
  auto outcome = report({"run.json", "--layers"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "planned peak")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "\nlayer ")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "\nblocks.2 ")) << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "what terminals would obey";
  EXPECT_FALSE(exists("run.html")) << "no page unasked";
  outcome = report({"run.json", "--layers", "--html", "page.html"});
  EXPECT_TRUE(exists("page.html") && holds(outcome.out, "\nlayer "));
  expect_failure(report({"g.json", "--layers"}), 1, "[layers] 'g.json' has no names of layers");
}

TEST_F(ReportCommandTest, FilesThatAreNoStepAreRefusedAndNothingIsLost) {
  directory_.write("g.html", "precious");
  expect_failure(report({"none.json"}), 1, "[run] cannot read 'none.json'");
  directory_.write("g.json", to_json(graph_).substr(0, 3000));
  expect_failure(report({"g.json"}), 1, "[run] 'g.json': ");
  directory_.write("g.json", "{\"format\": \"remat-plan\"}");
  expect_failure(report({"g.json"}), 1, "[run] 'g.json': format is \"remat-plan\", not \"remat-run\"");
  expect_failure(report({"text"}), 1, "[run] 'text': no JSON");
  EXPECT_EQ(written("g.html"), "precious");
}

TEST_F(ReportCommandTest, ThePageNeverTakesTheRunsPlace) {
  directory_.write("run.html", to_json(graph_));
  expect_failure(report({"run.html"}), 2, "RUN and the page are the same file");
  EXPECT_EQ(written("run.html"), to_json(graph_));
}

TEST_F(ReportCommandTest, ARunWithoutPlanAndReportIsRead) {
  directory_.write("run.json", to_json(remat::Run{.name = "bare", .graph = graph_}));
  EXPECT_EQ(report({"run.json"}).code, 0);
  EXPECT_TRUE(exists("run.html"));
}

TEST_F(ReportCommandTest, ABudgetThatIsTooSmallHasItsOwnCode) {
  expect_failure(report({"g.json", "--budget", "1%"}), 3, "[plan] auto found no plan within ");
  EXPECT_FALSE(exists("g.html"));
}

TEST_F(ReportCommandTest, OptionsThatMakeNoSenseAreRefused) {
  expect_failure(report({}), 2, "RUN is required");
  expect_failure(report({"g.json", "--budget", "40%", "--plan", "p"}), 2, "leave one of them out");
  expect_failure(report({"g.json", "--budget", "device"}), 2, "--budget device means nothing for a graph");
  expect_failure(report({"g.json", "--html", "g.json"}), 2, "RUN and --html are");
  expect_failure(train({"--plain", "--save-run", "r"}), 2, "--save-run has no effect with --plain");
  expect_failure(train({"--planner", "online", "--save-run", "r"}), 2,
                 "--save-run has no effect with --planner online");
  expect_failure(report({"g.json", "--svg", "no/such/folder.svg"}), 1, "[svg] cannot write");
}

}  // namespace
}  // namespace remat::cli

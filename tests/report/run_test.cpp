#include <remat/run.h>

#include <gtest/gtest.h>

#include <remat/error.h>
#include <remat/planner.h>

#include "plan/sample_graph.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

Run sample_run() {
  Run run;
  run.name = "a \"run\"";
  run.graph = sample_graph();
  run.plan = make_plan(run.graph, 1 << 20);
  run.report.emplace();
  run.report->decided_by = "auto";
  run.report->peak_bytes = 700;
  run.layers = {"linear", "", "gate"};
  return run;
}

TEST(Run, IsReadAsItWasWritten) {
  const auto run = sample_run(), again = run_from_json(to_json(run));
  EXPECT_EQ(again.name, run.name);
  EXPECT_EQ(again.graph, run.graph);
  EXPECT_EQ(again.plan, run.plan);
  EXPECT_EQ(to_json(*again.report), to_json(*run.report));
  EXPECT_EQ(again.layers, run.layers);
}

TEST(Run, NeedsNoMoreThanAGraph) {
  remat::Run run;  // in a test, Run() is the test's own
  run.graph = sample_graph();
  const auto again = run_from_json(to_json(run));
  EXPECT_FALSE(again.plan || again.report);
  EXPECT_TRUE(again.layers.empty());
}

TEST(Run, OfPartsThatDoNotBelongTogetherIsRefused) {
  auto run = sample_run();
  run.layers.pop_back();
  EXPECT_ERROR(to_json(run), "[run] there are 2 layers");
  run = sample_run();
  run.plan->graph_fingerprint ^= 1;
  EXPECT_ERROR(to_json(run), "[run] the plan is for the graph with fingerprint");
  EXPECT_ERROR(to_svg(run), "[run] the plan is for the graph");
}

TEST(Run, WhatIsNoneIsRefused) {
  const std::string text = to_json(sample_run());
  for (size_t length : {size_t{0}, size_t{1}, text.size() / 3, text.size() - 3}) {
    EXPECT_THROW(run_from_json(text.substr(0, length)), Error) << length;
  }
  EXPECT_ERROR(run_from_json("[]"), "[run] the document is an array");
  EXPECT_ERROR(run_from_json(to_json(sample_graph())), "[run] format is \"remat-graph\", not \"remat-run\"");
  std::string other = text;
  other.replace(other.find("\"gate\""), 6, "12");
  EXPECT_ERROR(run_from_json(other), "[run] layers has 12, not a string");
  other = text;
  other.replace(other.find("aten::relu"), 10, "aten::tanh");
  EXPECT_ERROR(run_from_json(other), "[run] the plan is for the graph with fingerprint");
}

}  // namespace
}  // namespace remat::test

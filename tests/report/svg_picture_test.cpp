#include <gtest/gtest.h>

#include <remat/budget.h>
#include <remat/planner.h>
#include <remat/run.h>

#include "cli/xml_problem.h"
#include "plan/sample_graph.h"
#include "report/columns.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

auto planned_chain(int32_t operators) {
  remat::Run run;
  run.graph = chain_graph(operators);
  run.graph.baseline_bytes = run.graph.parameter_bytes = 1 << 19;
  run.plan = make_plan(run.graph, run.graph.baseline_bytes + int64_t{1300} * operators);
  return run;
}

TEST(SvgPicture, NamesPeaksBudgetAndParts) {
  const auto run = planned_chain(300);
  const std::string svg = to_svg(run);
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_TRUE(holds(svg, "plain: " + format_bytes(make_timeline(run.graph).peak_bytes())));
  EXPECT_TRUE(holds(svg, "budget " + format_bytes(run.plan->budget_bytes)));
  for (const char* text : {"kept activations", "parameters", "recomputed", "forward", "backward",
                           "time in the step, ms", "prefers-color-scheme:dark"}) {
    EXPECT_TRUE(holds(svg, text));
  }
  EXPECT_EQ(svg.find("gradients"), std::string::npos);  // there are none
}

TEST(SvgPicture, OfALargeStepIsSmall) { EXPECT_LT(to_svg(planned_chain(5000)).size(), 60'000u); }

TEST(SvgPicture, CanBeOfAnyGraph) {
  remat::Run run;
  EXPECT_EQ(xml_problem(to_svg(run)), "");  // nothing at all
  run.graph = sample_graph();
  EXPECT_EQ(xml_problem(to_svg(run)), "");
  run.graph.step_seconds = 0;
  for (GraphOperator& op : run.graph.operators) op.seconds = op.replay_seconds = 0;
  EXPECT_TRUE(holds(to_svg(run), "events of the step"));
}

TEST(Columns, LoseNoPeak) {
  const auto run = planned_chain(1000);
  const Timeline timeline = make_timeline(run.graph, run.plan->actions);
  for (const size_t count : {size_t{1}, size_t{7}, size_t{310}, size_t{100'000}}) {
    int64_t most = 0;
    for (const TimelineMoment* moment : columns_of(timeline, timeline.end_seconds, count)) {
      ASSERT_NE(moment, nullptr);
      most = std::max(most, moment->parts.total());
    }
    EXPECT_EQ(most, timeline.peak_bytes());
  }
}

}  // namespace
}  // namespace remat::test

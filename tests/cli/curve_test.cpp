#include "cli/curve.h"

#include <functional>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "cli/xml_problem.h"
#include "plan/sample_graph.h"
#include "support/expect_error.h"

namespace remat::cli {
namespace {

Curve curve_of(const Graph& graph, const std::string& planner) {
  return make_curve(PlainStep(graph), planner, [&](int64_t budget) { return try_plan(graph, budget, planner, {}); });
}

std::vector<double> percents(const Curve& curve) {
  std::vector<double> result;
  for (const auto& point : curve.points) result.push_back(point.percent);
  return result;
}

TEST(CurveTest, BudgetsFallByFivePercentUntilThereIsNoPlan) {
  const Graph graph = chain_graph(10);
  const PlainStep plain(graph);
  const auto curve = curve_of(graph, "auto");
  ASSERT_GT(curve.points.size(), 5u);
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const auto& point = curve.points[i];
    EXPECT_EQ(point.percent, 100 - 5 * static_cast<double>(i));
    EXPECT_EQ(point.budget_bytes, plain.bytes_of(Budget::percent(point.percent)));
    EXPECT_LE(point.predicted_peak_bytes, point.budget_bytes);
    EXPECT_GT(point.planning_seconds, 0);
  }
  EXPECT_EQ(curve.points.front().predicted_seconds, 0);
  ASSERT_TRUE(curve.smallest_peak_bytes);
  EXPECT_GT(*curve.smallest_peak_bytes, plain.bytes_of(Budget::percent(curve.points.back().percent - 5)));
}

// A planner that fumbles every second budget.
TEST(CurveTest, LessMemoryNeverLooksFaster) {
  const Graph graph = chain_graph(10);
  bool fumble = true;
  const auto plan_for = [&](int64_t budget) {
    auto attempt = try_plan(graph, budget, "auto", {});
    if (attempt.plan && (fumble = !fumble)) attempt.plan->predicted_seconds += 1;
    return attempt;
  };
  const auto curve = make_curve(PlainStep(graph), "auto", plan_for);
  ASSERT_GT(curve.points.size(), 5u);
  for (size_t i = 1; i < curve.points.size(); ++i) {
    EXPECT_LE(curve.points[i - 1].predicted_seconds, curve.points[i].predicted_seconds);
  }
}

TEST(CurveTest, APlanForLessTakesThePlaceOfSlowerOnesForMore) {
  std::vector<CurvePoint> points = {{100, 1000, 990, 0, 0.1}, {95, 950, 940, 5, 0.2}, {90, 900, 880, 7, 0.3},
                                    {85, 850, 830, 3, 0.4},   {80, 800, 790, 3, 0.5}, {75, 750, 740, 9, 0.6}};
  carry_forward(points);
  std::vector<double> seconds;
  std::vector<int64_t> peaks;
  for (const auto& point : points) {
    seconds.push_back(point.predicted_seconds);
    peaks.push_back(point.predicted_peak_bytes);
  }
  EXPECT_EQ(seconds, (std::vector<double>{0, 3, 3, 3, 3, 9}));
  EXPECT_EQ(peaks, (std::vector<int64_t>{990, 830, 830, 830, 790, 740}));
  EXPECT_EQ(points[1].percent, 95);
  EXPECT_EQ(points[1].budget_bytes, 950);
  EXPECT_EQ(points[1].planning_seconds, 0.2);
  std::vector<CurvePoint> none;
  carry_forward(none);
}

TEST(CurveTest, APlannerThatOnlyKeepsHasOnePoint) {
  const Graph graph = chain_graph(10);
  const auto curve = curve_of(graph, "keep-all");
  EXPECT_EQ(percents(curve), std::vector<double>{100});
  EXPECT_EQ(curve.smallest_peak_bytes, PlainStep(graph).peak_bytes);
}

TEST(CurveTest, AGraphWithoutPercentagesIsRefused) {
  EXPECT_ERROR(curve_of(Graph(), "auto"), "[curve] the graph has an activation peak of 0 bytes");
  auto graph = chain_graph(10);
  graph.step_seconds = 0;
  EXPECT_ERROR(curve_of(graph, "auto"), "and a step of 0.00 ms, which leaves no percentages; record");
}

TEST(CurveTest, APlannerWithoutAnyPlanHasNoCurve) {
  const Graph graph = chain_graph(10);
  const auto plan_for = [&](int64_t /*budget*/) { return try_plan(graph, 1, "keep-all", {}); };
  EXPECT_THROW(make_curve(PlainStep(graph), "keep-all", plan_for), BudgetError);
}

TEST(CurveTest, OtherErrorsPass) { EXPECT_ERROR(curve_of(chain_graph(10), "magic"), "there is no planner \"magic\""); }

TEST(CurveTest, TheJsonHasEveryField) {
  PlainStep plain(chain_graph(3));
  plain.seconds = 8;
  const std::vector<CurvePoint> points = {{100, 1000, 990, 0, 0.5}, {95, 950, 940, 2, 0.25}};
  EXPECT_EQ(to_json(points, plain), nlohmann::json::parse(R"([
    {"percent": 100.0, "budget_bytes": 1000, "predicted_peak_bytes": 990, "predicted_seconds": 0.0,
     "extra_percent": 0.0, "planning_seconds": 0.5},
    {"percent": 95.0, "budget_bytes": 950, "predicted_peak_bytes": 940, "predicted_seconds": 2.0,
     "extra_percent": 25.0, "planning_seconds": 0.25}])"));
}

TEST(CurveTest, TheChartHasAPointForEachBudget) {
  PlainStep plain(chain_graph(3));
  plain.baseline_bytes = 1 << 20;
  plain.peak_bytes = 3 << 20;
  plain.seconds = 8;
  const Curve curve{"auto", {{100, 3 << 20, 3 << 20, 0, 0.5}, {55, 2200000, 2 << 20, 2, 0.25}}, {}};
  const auto svg = to_svg(curve, plain, "a<b.json");
  EXPECT_EQ(test::xml_problem(svg), "");
  EXPECT_TRUE(test::holds(svg, "a&lt;b.json, planner auto"));
  EXPECT_TRUE(test::holds(svg, "activation peak, % of plain</text>"));
  EXPECT_TRUE(test::holds(svg, "extra time, % of the step</text>"));
  EXPECT_TRUE(test::holds(svg, "points=\"616,344 340,"));
  EXPECT_TRUE(test::holds(
      svg, "<title>budget 55%: activation peak 50.0% (1.00 MiB), extra time 25.0% (2.00 s)</title></circle>"));
}

}  // namespace
}  // namespace remat::cli

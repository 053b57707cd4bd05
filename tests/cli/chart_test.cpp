#include "cli/chart.h"

#include <gtest/gtest.h>

#include "cli/xml_problem.h"
#include "support/expect_error.h"

namespace remat::cli {
namespace {

using test::holds;

Chart sample_chart() {
  return {.title = "a graph",
          .x_label = "memory",
          .y_label = "time",
          .lines = {{.points = {{100, 0, "plain"}, {50, 10, "half"}, {25, 40, "quarter"}}}}};
}

// The check itself must be able to fail.
TEST(XmlProblemTest, FindsWhatIsWrong) {
  EXPECT_EQ(test::xml_problem("<a b=\"1\">x &amp; y<c/></a>\n"), "");
  for (const char* wrong :
       {"<a>", "<a></b>", "<a/><b/>", "<a b=1/>", "<a b=\"1\"c=\"2\"/>", "<a>&</a>", "<a>&nbsp;</a>", "<a b=\"<\"/>",
        "x<a/>", "", "<a/>x", "<a></a></a>", "<a", "<a b=\"&x\"/>", "<>x</>"}) {
    EXPECT_NE(test::xml_problem(wrong), "") << wrong;
  }
}

TEST(ChartTest, IsWellFormed) {
  EXPECT_EQ(test::xml_problem(to_svg(sample_chart())), "");
  EXPECT_EQ(test::xml_problem(to_svg(Chart{})), "");
}

TEST(ChartTest, HasTitleLabelsAndTicks) {
  const auto svg = to_svg(sample_chart());
  EXPECT_TRUE(holds(svg, "<title>a graph</title>"));
  EXPECT_TRUE(holds(svg, ">memory</text>"));
  EXPECT_TRUE(holds(svg, ">time</text>"));
  for (const auto* tick : {">0<", ">20<", ">40<", ">60<", ">80<", ">100<", ">10<", ">30<"}) {
    EXPECT_TRUE(holds(svg, tick));
  }
}

// The plot is from (64, 344) for (0, 0) to (616, 40) for 100 and the last tick, here 40.
TEST(ChartTest, PointsAreWhereTheAxesSay) {
  const auto svg = to_svg(sample_chart());
  EXPECT_TRUE(holds(svg, "points=\"616,344 340,268 202,40\""));
  EXPECT_TRUE(holds(svg, "cx=\"616\" cy=\"344\" r=\"4\"><title>plain</title></circle>"));
  EXPECT_TRUE(holds(svg, "cx=\"340\" cy=\"268\" r=\"4\"><title>half</title></circle>"));
}

TEST(ChartTest, TheAxisEndsAboveTheHighestPoint) {
  auto chart = sample_chart();
  chart.lines[0].points.back().y = 41;
  EXPECT_TRUE(holds(to_svg(chart), ">60<"));
  chart.lines[0].points.back().y = 0.3;
  chart.lines[0].points[1].y = 0.1;
  EXPECT_TRUE(holds(to_svg(chart), ">0.3<"));
}

TEST(ChartTest, AFlatLineIsDrawnAtTheBottom) {
  const auto svg =
      to_svg(Chart{.title = "", .x_label = "", .y_label = "", .lines = {{.points = {{100, 0, ""}, {90, 0, ""}}}}});
  EXPECT_TRUE(holds(svg, "points=\"616,344 560.8,344\""));
  EXPECT_EQ(test::xml_problem(svg), "");
}

TEST(ChartTest, SeveralLinesHaveALegendAndAColourEach) {
  auto chart = sample_chart();
  EXPECT_FALSE(holds(to_svg(chart), "stroke-dasharray"));
  chart.lines[0].name = "ours";
  chart.lines.push_back({.name = "their <line>", .points = {{10, 5, ""}}, .colour = 1, .dashed = true});
  const auto svg = to_svg(chart);
  EXPECT_EQ(test::xml_problem(svg), "");
  EXPECT_TRUE(holds(svg, ">ours</text>"));
  EXPECT_TRUE(holds(svg, ">their &lt;line&gt;</text>"));
  EXPECT_TRUE(holds(svg, "stroke=\"#1f5fa8\" points="));
  EXPECT_TRUE(holds(svg, "stroke=\"#d55e00\" stroke-dasharray=\"6 4\" points="));
}

TEST(ChartTest, AnAxisReachesAsFarAsItsPointsOrAsItIsTold) {
  auto chart = sample_chart();
  chart.x_end = 0;
  chart.lines[0].points[0].x = 400;
  EXPECT_TRUE(holds(to_svg(chart), "points=\"616,344 "));
  EXPECT_TRUE(holds(to_svg(chart), ">400<"));
  chart.y_end = 20;  // the last point is higher: the line runs out of the picture
  EXPECT_TRUE(holds(to_svg(chart), "clip-path=\"url(#plot)\" stroke=\"#1f5fa8\" points=\"616,344 133,192 98.5,-264\""));
  EXPECT_FALSE(holds(to_svg(chart), "cy=\"-"));
}

TEST(ChartTest, WhatIsNegativeIsDrawnBelowZero) {
  auto chart = sample_chart();
  chart.lines[0].points[0].y = -3;  // 50 between the ends of the axis, -10 and 40
  const auto svg = to_svg(chart);
  EXPECT_TRUE(holds(svg, ">-10</text>"));
  EXPECT_TRUE(holds(svg, "points=\"616,301.44 340,222.4 202,40\""));
}

TEST(ChartTest, AnyTextIsEscaped) {
  auto chart = sample_chart();
  chart.title = "<a> & \"b\"\x01.json";
  chart.lines[0].points[0].tooltip = "</title>";
  const auto svg = to_svg(chart);
  EXPECT_EQ(test::xml_problem(svg), "");
  EXPECT_TRUE(holds(svg, "&lt;a&gt; &amp; &quot;b&quot;?.json"));
  EXPECT_TRUE(holds(svg, "<title>&lt;/title&gt;</title>"));
}

}  // namespace
}  // namespace remat::cli

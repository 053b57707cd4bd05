#include <cmath>
#include <regex>
#include <string>
#include <vector>

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

struct Text {
  double left, right, bottom;
  std::string words;
};

/// All texts, with 6 of 13 px for a letter, which is what most fonts take.
std::vector<Text> texts_of(const std::string& svg) {
  const std::regex element("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" text-anchor=\"(\\w+)\"[^>]*>([^<]*)</text>");
  std::vector<Text> texts;
  for (std::sregex_iterator found(svg.begin(), svg.end(), element), end; found != end; ++found) {
    const std::string anchor = (*found)[3], words = (*found)[4];
    const double width = 6.0 * static_cast<double>(words.size()), x = std::stod((*found)[1]);
    const double left = x - (anchor == "start" ? 0 : anchor == "end" ? width : width / 2);
    texts.push_back({left, left + width, std::stod((*found)[2]), words});
  }
  return texts;
}

void expect_no_text_touches_another(const std::string& svg, const std::string& what) {
  EXPECT_EQ(xml_problem(svg), "");
  const std::vector<Text> texts = texts_of(svg);
  EXPECT_GT(texts.size(), 5u) << what;
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Text &a = texts[i], &b = texts[j];
      const bool touches = a.left < b.right && b.left < a.right && std::abs(a.bottom - b.bottom) < 13;
      EXPECT_FALSE(touches) << what << ": '" << a.words << "' and '" << b.words << "'";
    }
  }
}

/// Small steps beside much that was alive before, steps near plain's peak, short ones and long ones.
TEST(SvgPicture, NoTextTouchesAnother) {
  for (const int32_t operators : {2, 3, 8, 40}) {
    for (const int64_t before : {int64_t{0}, int64_t{1} << 12, int64_t{1} << 16, int64_t{1} << 20}) {
      for (const int percent : {30, 97, 100}) {
        remat::Run run;
        run.graph = chain_graph(operators);
        run.graph.baseline_bytes = before;
        run.graph.parameter_bytes = before / 8;
        run.graph.gradient_bytes = before / 8;
        const int64_t activations = run.graph.plain_peak_bytes() - before;
        const int64_t budget = std::max(before + activations * percent / 100, smallest_online_budget(run.graph));
        run.plan = make_plan(run.graph, budget);
        const std::string what = std::to_string(operators) + " operators, " + std::to_string(before) +
                                 " bytes before, " + std::to_string(percent) + " %";
        expect_no_text_touches_another(to_svg(run), what);
        run.plan.reset();
        expect_no_text_touches_another(to_svg(run), what + ", plain");
      }
    }
  }
}

/// What has no room beside the curves stands below, with its colour.
TEST(SvgPicture, EveryPartIsNamed) {
  auto run = planned_chain(8);
  run.graph.baseline_bytes = 1 << 20;
  run.graph.parameter_bytes = run.graph.gradient_bytes = 1 << 16;
  run.plan = make_plan(run.graph, run.graph.plain_peak_bytes());
  const std::string svg = to_svg(run);
  for (const char* part : {"parameters", "gradients", "optimizer and inputs"}) EXPECT_TRUE(holds(svg, part));
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

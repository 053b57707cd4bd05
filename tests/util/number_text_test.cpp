// Numbers as text: as printf() has them in the locale "C", under any locale.
#include <remat/support/number_text.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/fit.h>
#include <remat/planner.h>
#include <remat/run.h>

#include "plan/sample_graph.h"
#include "support/comma_locale.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

std::string printed(const char* format, int digits, double value) {
  char text[512];
  std::snprintf(text, sizeof text, format, digits, value);
  return text;
}

TEST(NumberText, IsWhatPrintfWrites) {
  const double most = std::numeric_limits<double>::max();
  for (const double value :
       {0.0, -0.0, 1.0, -1.5, 0.125, 2.675, 1e-7, 123456.5, 1234567.0, 1e300, most, -most,
        std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const int digits : {0, 1, 2, 3, 9}) {
      EXPECT_EQ(support::fixed_text(value, digits), printed("%.*f", digits, value));
      EXPECT_EQ(support::short_text(value, digits), printed("%.*g", digits, value));
    }
    EXPECT_EQ(support::short_text(value), printed("%.*g", 6, value));
  }
}

TEST(NumberText, ListsWholeNumbers) {
  EXPECT_EQ(support::list_text(std::vector<int64_t>{}), "[]");
  EXPECT_EQ(support::list_text(std::vector<int64_t>{2, 30000}), "[2, 30000]");
}

TEST(NumberText, IsShort) {
  EXPECT_EQ(support::fixed_text(3.14159, 2), "3.14");
  EXPECT_EQ(support::fixed_text(-0.5, 2), "-0.50");
  EXPECT_EQ(support::short_text(0.25), "0.25");
  EXPECT_EQ(support::short_text(1e9), "1e+09");
}

Run planned_run() {
  Run run;
  run.name = "a chain";
  run.graph = chain_graph(300);
  run.plan = make_plan(run.graph, int64_t{1300} * 300);
  run.report = StepReport();
  run.report->peak_bytes = 3'155'555;
  run.report->step_seconds = 1.25;
  run.report->replayed = {{"aten::gelu", 4000, 0.125, 1024000}};
  return run;
}

Fit found() {
  Fit fit;
  fit.what = "batch";
  fit.budget_bytes = 3'155'555;
  fit.most_loss_percent = 12.5;
  fit.plain = FitPoint{1000, 3'000'000, 0.0123};
  fit.largest = FitPoint{2500, 3'100'000, 1.2345};
  fit.worthwhile = FitPoint{1200, 3'100'000, 0.0136};
  return fit;
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// All texts that remat writes without torch.
std::vector<std::string> texts() {
  const Run run = planned_run();
  Graph damaged = run.graph;
  damaged.operators.front().seconds = -1234.5;
  FitOptions options{.sizes = {1}, .budget_bytes = 1, .most_loss_percent = 123.5};
  return {
      support::fixed_text(1234.5, 1),
      support::short_text(1234.5),
      support::list_text(std::vector<int64_t>{1234567}),
      format_bytes(3'155'555),
      Budget::percent(12.5).to_string(),
      Budget::parse("3.01 MiB").to_string(),
      message([] { Budget::parse("12.5"); }),
      message([] { Budget::percent(100.5); }),
      damaged.problem(),
      message([&] { options.check(); }),
      to_text(*run.report),
      to_json(*run.report),
      to_text(report_from_json(to_json(*run.report))),
      to_json(run.graph),
      to_json(graph_from_json(to_json(run.graph))),
      to_json(*run.plan),
      to_json(plan_from_json(to_json(*run.plan))),
      to_json(run),
      to_svg(run),
      to_html(run),
      to_trace(run),
      to_text(found()),
      to_json(found()),
      to_text(floor_of(run.graph)),
  };
}

TEST(NumberText, IsTheSameUnderADecimalComma) {
  const std::vector<std::string> expected = texts();
  const CommaLocale locale;
  ASSERT_TRUE(locale.works()) << "install localedef, of Debian's package libc-bin";
  ASSERT_EQ(printed("%.*f", 1, 1.5), "1,5") << "the locale is not what the test needs";
  const std::vector<std::string> shown = texts();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(shown[i], expected[i]);
}

}  // namespace
}  // namespace remat::test

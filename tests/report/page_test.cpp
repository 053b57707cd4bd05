#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <remat/budget.h>
#include <remat/planner.h>
#include <remat/run.h>

#include "plan/sample_graph.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

using nlohmann::json;

auto planned_chain(int32_t operators, int64_t percent) {
  remat::Run run;
  run.name = "a chain";
  run.graph = chain_graph(operators);
  const int64_t plain = predict(run.graph, std::vector<Action>(run.graph.values.size(), Action::kKeep)).peak_bytes;
  run.plan = make_plan(run.graph, plain * percent / 100);
  return run;
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

json data_of(const std::string& page) {
  return json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
}

/// The highest sum of the parts of a timeline in a page.
int64_t peak_of(const json& timeline) {
  const size_t count = timeline.at("times").size();
  std::vector<int64_t> totals(count, 0);
  for (const json& changes : timeline.at("parts")) {
    size_t next = 0;
    int64_t bytes = 0;
    for (size_t m = 0; m < count; ++m) {
      if (next < changes.size() && changes[next] == m) {
        bytes = changes[next + 1];
        next += 2;
      }
      totals[m] += bytes;
    }
  }
  return *std::max_element(totals.begin(), totals.end());
}

TEST(Page, HasTheStepPlainAndPlanned) {
  const auto run = planned_chain(60, 40);
  const json data = data_of(to_html(run));
  EXPECT_EQ(peak_of(data.at("step")), run.plan->predicted_peak_bytes);
  EXPECT_GT(peak_of(data.at("plain")), peak_of(data.at("step")));
  EXPECT_EQ(data.at("budget"), run.plan->budget_bytes);
  EXPECT_EQ(data.at("values").size(), 60u);
  double seconds = 0;
  int64_t replays = 0;
  for (const json& row : data.at("values")) {
    replays += row[5].get<int64_t>();
    seconds += row[6].get<double>() * 1e-9;
  }
  EXPECT_GT(replays, 0);
  EXPECT_LE(seconds, run.plan->predicted_seconds + 1e-6);  // which has packing, too
  EXPECT_GT(seconds, 0.5 * run.plan->predicted_seconds);
}

TEST(Page, PutsWhatWasMeasuredBesideWhatWasPlanned) {
  auto run = planned_chain(60, 40);
  run.report.emplace();
  run.report->peak_bytes = 12345;
  run.report->replayed = {{"aten::op1", 3, 0.5, 100}};
  const json data = data_of(to_html(run));
  EXPECT_EQ(data.at("figures")[0], json({"peak", "bytes", run.plan->predicted_peak_bytes, 12345}));
  const auto& rows = data.at("replayed");
  EXPECT_TRUE(std::ranges::any_of(rows, [](const json& row) { return row[0] == "aten::op1" && row[3] == 3; }));
}

// Planned times are those of the recorded step, which may have been slow: measured ones go before them.
TEST(Page, SaysWhatTheStepCostAsMeasured) {
  auto run = planned_chain(60, 40);
  EXPECT_TRUE(data_of(to_html(run)).at("cost").is_null());
  run.report.emplace();
  run.report->step_seconds = 1.1;
  run.report->recompute_seconds = 0.1;
  EXPECT_TRUE(data_of(to_html(run)).at("cost").is_null());  // the step did not complete
  run.report->completed = true;
  EXPECT_NEAR(data_of(to_html(run)).at("cost").get<double>(), 10, 1e-9);
}

TEST(Page, WhatReplaysNeedIsToldFromPlain) {
  auto run = planned_chain(60, 40);
  const int64_t recorded = data_of(to_html(run)).at("plain_peak");
  EXPECT_EQ(data_of(to_html(run)).at("figures")[1], json({"peak of plain", "bytes", recorded, nullptr}));
  run.report.emplace();
  run.report->completed = true;
  run.report->plain_peak_bytes = recorded - 5056;
  const json data = data_of(to_html(run));
  EXPECT_EQ(data.at("plain_peak"), recorded - 5056);
  EXPECT_EQ(data.at("figures")[1], json({"peak with all kept", "bytes", recorded, nullptr}));
  EXPECT_EQ(data.at("figures")[2], json({"peak of plain", "bytes", nullptr, recorded - 5056}));
  EXPECT_TRUE(holds(to_svg(run), "plain: " + format_bytes(recorded - 5056)));
  run.report->plain_peak_bytes = recorded;
  EXPECT_EQ(data_of(to_html(run)).at("figures")[1], json({"peak of plain", "bytes", recorded, recorded}));
  run.report->plain_peak_bytes = 1;
  run.report->completed = false;  // then it is what plain took until then
  EXPECT_EQ(data_of(to_html(run)).at("plain_peak"), recorded);
}

TEST(Page, OfAStepWithoutAPlanShowsPlain) {
  auto run = planned_chain(20, 50);
  run.plan.reset();
  EXPECT_TRUE(data_of(to_html(run)).at("step").is_null());
}

TEST(Page, LoadsNothing) {
  const std::string page = to_html(planned_chain(20, 50));
  EXPECT_TRUE(holds(page, "default-src 'none'"));
  for (const char* loads : {" src=", "@import", "url(http", "<link", "fetch("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
}

TEST(Page, NamesAreText) {
  auto run = planned_chain(20, 50);
  const std::string evil = "</script><script>alert(1)</script><!--<script>";
  run.plan.reset();
  run.graph.operators[0].name = evil;
  run.name = "</title><script>alert(2)</script>/*script*/<!--data-->";
  run.layers.assign(20, evil);
  const std::string page = to_html(run);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_TRUE(holds(page, "<title>&lt;/title&gt;&lt;script&gt;alert(2)"));
  EXPECT_EQ(data_of(page).at("names")[0], evil);
  EXPECT_EQ(data_of(page).at("layers")[0], evil);
  run.graph.operators[0].name = "not UTF-8: \xff";
  EXPECT_EQ(data_of(to_html(run)).at("names")[0], "not UTF-8: \xef\xbf\xbd");
}

TEST(Page, OfALargeStepIsSmall) { EXPECT_LT(to_html(planned_chain(2500, 40)).size(), 3'000'000u); }

}  // namespace
}  // namespace remat::test

#include <remat/report.h>

#include <gtest/gtest.h>
#include <remat/error.h>

namespace remat {
namespace {

StepReport example() {
  StepReport report;
  report.step = 3;
  report.completed = true;
  report.budget_bytes = 2048;
  report.baseline_bytes = 512;
  report.peak_bytes = 2000;
  report.plain_peak_bytes = 4096;
  report.recompute_seconds = 0.25;
  report.planning_seconds = 1;
  report.step_seconds = 3.75;
  report.decided_by = "auto";
  report.decision_reason = "the plan given is of another graph";
  report.replayed = {{"aten::gelu", 4, 0.125, 1024}};
  return report;
}

TEST(Report, SeparatesActivationsFromWhatWasThere) {
  EXPECT_EQ(example().activation_peak_bytes(), 1488);
  EXPECT_EQ(example().plain_activation_peak_bytes(), 3584);
}

TEST(Report, TextShowsBudgetPeakAndReplays) {
  const std::string text = to_text(example());
  EXPECT_NE(text.find("budget                 2.00 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("plain would peak at    4.00 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("aten::gelu"), std::string::npos) << text;
}

TEST(Report, TextSaysWhatWasSavedAtWhichCost) {
  StepReport report = example();
  EXPECT_DOUBLE_EQ(report.saved_percent(), 100 * (1 - 1488.0 / 3584));
  EXPECT_DOUBLE_EQ(report.cost_percent(), 10);
  std::string text = to_text(report);
  EXPECT_NE(text.find("saved 58 % of the activation peak, costs 10 % of the time"), std::string::npos) << text;
  report.recompute_seconds = 0;
  report.peak_bytes = report.plain_peak_bytes;
  text = to_text(report);
  EXPECT_NE(text.find("saved 0 % of the activation peak, costs 0 % of the time"), std::string::npos) << text;
  report.peak_bytes += 64;
  text = to_text(report);
  EXPECT_NE(text.find("activation peak 1.8 % higher, by what replays need, costs 0 % of the time"), std::string::npos)
      << text;
  report.peak_bytes = report.plain_peak_bytes + 1;
  EXPECT_NE(to_text(report).find("saved 0 % of the activation peak"), std::string::npos) << to_text(report);
  EXPECT_EQ(StepReport().saved_percent(), 0) << "a step that took nothing";
  EXPECT_EQ(StepReport().cost_percent(), 0);
}

TEST(Report, TextSaysWhoDecidedAndWhy) {
  StepReport report = example();
  std::string text = to_text(report);
  EXPECT_NE(text.find("decided by             auto: the plan given is of another graph\n"), std::string::npos) << text;
  report.decision_reason.clear();
  text = to_text(report);
  EXPECT_NE(text.find("decided by             auto\n"), std::string::npos) << text;
}

TEST(Report, TextSaysHowLongTheStepWaitedForAPlan) {
  StepReport report = example();
  report.step_seconds = 2;
  report.planning_seconds = 0.015;
  EXPECT_EQ(to_text(report).find("waiting for a plan"), std::string::npos);
  report.planning_seconds = 1.5;
  EXPECT_NE(to_text(report).find(", waiting for a plan 1.500 s\n"), std::string::npos) << to_text(report);
}

TEST(Report, AJsonReadsBack) {
  const StepReport report = example();
  const StepReport read = report_from_json(to_json(report));
  EXPECT_EQ(to_json(read), to_json(report));
  EXPECT_EQ(to_text(read), to_text(report));
  EXPECT_EQ(read.replayed.at(0).bytes, 1024);
  for (const char* text : {"", "{}", "[]", R"({"step": "one"})", R"({"step": 1, "completed": 1})"}) {
    EXPECT_THROW(report_from_json(text), Error) << text;
  }
}

TEST(Report, JsonHasTheFieldsByName) {
  StepReport report = example();
  report.replayed[0].name = "odd\"name\n";
  const std::string json = to_json(report);
  EXPECT_NE(json.find("\"peak_bytes\": 2000"), std::string::npos) << json;
  EXPECT_NE(json.find("\"completed\": true"), std::string::npos) << json;
  EXPECT_NE(json.find("{\"name\": \"odd\\\"name\", \"count\": 4, \"seconds\": 0.125, \"bytes\": 1024}"),
            std::string::npos)
      << json;
}

}  // namespace
}  // namespace remat

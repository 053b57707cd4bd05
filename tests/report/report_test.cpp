#include <remat/report.h>

#include <gtest/gtest.h>

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

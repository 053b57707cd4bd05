#include "cli/comparison.h"

#include <bit>

#include <gtest/gtest.h>

#include "cli/training_loop.h"

namespace remat::cli {
namespace {

std::vector<StepResult> run() {
  std::vector<StepResult> results;
  for (int64_t step = 1; step <= 3; ++step) {
    StepResult result;
    result.step = step;
    result.loss = 1.0F / static_cast<float>(step);
    result.seconds = step == 1 ? 100.0 : static_cast<double>(step);
    result.baseline_bytes = step == 1 ? 100 : 300;
    result.peak_bytes = step == 1 ? 5000 : 1300;
    result.gradients = {{"w", 1, 2}, {"b", 3, 4}};
    result.parameters = {{"w", 5, 6}, {"b", 7, 8}};
    results.push_back(result);
  }
  return results;
}

TEST(ComparisonTest, EqualRunsHaveNoDifference) { EXPECT_EQ(first_difference(run(), run()), ""); }

TEST(ComparisonTest, TheFirstDifferenceIsNamed) {
  auto other = run();
  other[1].parameters[1].low ^= 1;
  EXPECT_EQ(first_difference(run(), other), "b after its update in step 2");
  other[1].gradients[0].high ^= 1;
  EXPECT_EQ(first_difference(run(), other), "the gradient of w in step 2");
  other[0].loss = std::bit_cast<float>(std::bit_cast<uint32_t>(other[0].loss) ^ 1);
  EXPECT_EQ(first_difference(run(), other), "the loss in step 1");
  other.pop_back();
  EXPECT_EQ(first_difference(run(), other), "the number of steps");
}

TEST(ComparisonTest, AMissingTensorIsADifference) {
  auto other = run();
  other[2].gradients.pop_back();
  EXPECT_NE(first_difference(run(), other), "");
}

TEST(ComparisonTest, APercentBudgetIsAShareOfWhatSettledStepsAdd) {
  EXPECT_EQ(budget_bytes(Budget::percent(40), run()), 300 + 400);
  EXPECT_EQ(budget_bytes(Budget::bytes(77), run()), 77);
  EXPECT_EQ(budget_bytes(Budget(), run()), 0);
}

TEST(ComparisonTest, APercentageOfBytesIsTheSmallestThatSuffices) {
  EXPECT_EQ(percentage_of(300 + 400, run()), 40);
  EXPECT_EQ(percentage_of(300 + 401, run()), 41);
  EXPECT_EQ(percentage_of(1, run()), 1);
  EXPECT_EQ(percentage_of(1300, run()), 100);
  EXPECT_EQ(percentage_of(1301, run()), std::nullopt);
}

TEST(ComparisonTest, MediansLeaveOutTheFirstStep) {
  EXPECT_EQ(median_seconds(run()), 2.5);
  EXPECT_EQ(median_seconds({run().front()}), 100.0);
  EXPECT_EQ(median_seconds({}), 0.0);
}

TEST(ComparisonTest, ReplaysAreSummedByOperatorAndSortedByTime) {
  auto results = run();
  for (auto& result : results) {
    result.report.emplace();
    result.report->replayed = {{"aten::add", 1, 0.5, 10}, {"aten::gelu", 2, 1.5, 20}};
  }
  const auto operators = replayed_operators(results);
  ASSERT_EQ(operators.size(), 2u);
  EXPECT_EQ(operators[0].name, "aten::gelu");
  EXPECT_EQ(operators[0].count, 4);
  EXPECT_EQ(operators[0].seconds, 3.0);
  EXPECT_EQ(operators[0].bytes, 40);
  EXPECT_EQ(operators[1].name, "aten::add");
}

}  // namespace
}  // namespace remat::cli

#include <remat/fit.h>

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <remat/error.h>

namespace remat::test {
namespace {

/// A training whose steps take other bytes, of which each refusal tells some: as sessions do.
class Steps {
 public:
  explicit Steps(std::vector<int64_t> bytes) : bytes_(std::move(bytes)) {}

  int64_t train(const Budget& budget) {
    asked.push_back(budget);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const bool first_of_percent = i == 0 && budget.kind() == Budget::Kind::kPercent;
      const int64_t limit = std::min(budget.kind() == Budget::Kind::kBytes ? budget.byte_count() : 1, device);
      if (!first_of_percent && bytes_[i] > limit) throw BudgetError("too small", limit, 1, bytes_[i]);
    }
    return *std::ranges::max_element(bytes_);
  }
  int64_t fit() {
    return fit_budget([this](const Budget& budget) { return train(budget); });
  }

  std::vector<Budget> asked;
  int64_t device = 1'000'000;

 private:
  std::vector<int64_t> bytes_;
};

/// What the largest step takes, and a tenth more at most.
void expect_close(int64_t found, int64_t least) {
  EXPECT_GE(found, least);
  EXPECT_LE(found, least + least / 10);
}

TEST(FitBudget, IsWhatTheLargestStepTakesAndALittleMore) {
  for (const auto& bytes :
       {std::vector<int64_t>{1000, 3000, 3000}, {3000, 1000, 2000}, {1000, 2000, 3000}, {3000}, {3000, 3000}}) {
    Steps steps(bytes);
    expect_close(steps.fit(), 3000);
    EXPECT_EQ(steps.asked.front(), Budget::percent(1));
    EXPECT_LE(steps.asked.size(), 10u);
  }
}

// Refusals may name more than is needed, or hardly more than there was.
TEST(FitBudget, IsTheSmallestWhateverRefusalsName) {
  for (const double named : {1.0, 1.3, 2.0, 5.0}) {
    for (const double raised : {1.0001, 1.02, 1.5}) {
      int calls = 0;
      const auto train = [&](const Budget& budget) -> int64_t {
        ++calls;
        const int64_t limit = budget.byte_count();
        if (limit >= 100'000) return 100'000;
        const double needed =
            budget.kind() == Budget::Kind::kPercent ? 20'000 * named : static_cast<double>(limit) * raised;
        throw BudgetError("too small", limit, 1, std::nullopt, static_cast<int64_t>(needed) + 1);
      };
      expect_close(fit_budget(train), 100'000);
      EXPECT_LE(calls, 16) << named << ' ' << raised;
    }
  }
}

TEST(FitBudget, StepsThatTakeMoreThanTheBudgetDoNotFitIt) {
  const auto train = [](const Budget&) -> int64_t { return 5000; };  // an optimizer's update, say
  expect_close(fit_budget(train), 5000);
  int64_t most = 0;
  const auto takes_more = [&](const Budget& budget) -> int64_t { return most = 2 * budget.byte_count() + 1; };
  EXPECT_THROW(fit_budget(takes_more), BudgetError);
}

TEST(FitBudget, NothingBelowALowerBoundIsTried) {
  std::vector<int64_t> tried;
  const auto train = [&](const Budget& budget) -> int64_t {
    tried.push_back(budget.byte_count());
    if (budget.byte_count() < 9000) throw BudgetError("too small", budget.byte_count(), 8900, std::nullopt, 9100);
    return 8999;
  };
  expect_close(fit_budget(train), 9000);
  EXPECT_EQ(tried, (std::vector<int64_t>{0, 9100}));
}

TEST(FitBudget, ADeviceWithLessEndsTheSearch) {
  Steps steps({100, 300, 400});
  steps.device = 350;
  EXPECT_THROW(steps.fit(), BudgetError);
  EXPECT_EQ(steps.asked.back(), Budget::bytes(400));
  EXPECT_LE(steps.asked.size(), 4u);
}

TEST(FitBudget, ATrainingThatAlwaysWantsMoreEndsTheSearch) {
  int calls = 0;
  const auto wants_more = [&](const Budget& budget) -> int64_t {
    ++calls;
    throw BudgetError("too small", budget.byte_count(), 1, budget.byte_count() + 1);
  };
  EXPECT_THROW(fit_budget(wants_more), BudgetError);
  EXPECT_EQ(calls, 24);
}

TEST(FitBudget, OtherErrorsAreHandedOn) {
  EXPECT_THROW(fit_budget([](const Budget&) -> int64_t { throw Error("no data"); }), Error);
}

}  // namespace
}  // namespace remat::test

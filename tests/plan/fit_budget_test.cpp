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

TEST(FitBudget, IsWhatTheLargestStepTakesAndHasBeenTried) {
  for (const auto& bytes : {std::vector<int64_t>{100, 300, 300}, {300, 100, 200}, {100, 200, 300}, {300}}) {
    Steps steps(bytes);
    EXPECT_EQ(steps.fit(), 300);
    EXPECT_EQ(steps.asked.front(), Budget::percent(1));
    EXPECT_EQ(steps.asked.back(), Budget::bytes(300));
  }
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
  EXPECT_EQ(calls, 10);
}

TEST(FitBudget, OtherErrorsAreHandedOn) {
  EXPECT_THROW(fit_budget([](const Budget&) -> int64_t { throw Error("no data"); }), Error);
}

}  // namespace
}  // namespace remat::test

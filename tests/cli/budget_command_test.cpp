// Budgets that are too small, as a user of the command meets them.
#include <gtest/gtest.h>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

using BudgetCommandTest = test::TrainingFixture;

TEST_F(BudgetCommandTest, ABudgetThatIsTooSmallHasItsOwnCodeAndLosesNothing) {
  const auto before_a_step = train({"--steps", "2", "--budget", "1kB"});
  expect_failure(before_a_step, 3, "[train] ");
  EXPECT_TRUE(holds(before_a_step.err, ") or more, or lower --layers or --width")) << before_a_step.err;
  const auto in_a_step = train({"--steps", "2", "--budget", "500kB"});
  expect_failure(in_a_step, 3, "[budget] ");
  EXPECT_TRUE(holds(in_a_step.err, ") or more, or lower --batch; no budget below ")) << in_a_step.err;
  EXPECT_EQ(in_a_step.err.find("()"), std::string::npos) << "no calls of the library's: " << in_a_step.err;
  EXPECT_EQ(train({"--steps", "2", "--checkpoint", "a.ckpt"}).code, 0);
  expect_failure(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume", "--budget", "1kB"}), 3, "[");
  EXPECT_EQ(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume"}).code, 0);
}

// The number of a refusal works at once, for as many steps as one likes, and a tenth less does not.
TEST_F(BudgetCommandTest, ARefusalNamesTheSmallestBudgetThatWorks) {
  for (const auto* model : {"gpt", "mlp"}) {
    const auto steps = [&](int64_t budget) {
      return train({"--model", model, "--steps", "6", "--budget", std::to_string(budget)});
    };
    for (const int64_t small : {1'000, 500'000}) {
      const auto refused = steps(small);
      ASSERT_EQ(refused.code, 3) << refused.err;
      const int64_t named = std::stoll(refused.err.substr(refused.err.find("--budget ") + 9));
      EXPECT_EQ(steps(named).code, 0) << model << ' ' << named;
      EXPECT_EQ(steps(named - named / 10).code, 3) << model << ' ' << named;
    }
  }
}

TEST_F(BudgetCommandTest, CompareNamesIt) {
  const auto refused = run(with_model("compare", {"--steps", "4", "--budget", "500kB"}));
  ASSERT_EQ(refused.code, 3) << refused.err;
  const std::string named = std::to_string(std::stoll(refused.err.substr(refused.err.find("--budget ") + 9)));
  EXPECT_EQ(run(with_model("compare", {"--steps", "4", "--budget", named})).code, 0) << named;
}

TEST_F(BudgetCommandTest, CompareWithTooSmallABudgetSaysSo) {
  expect_failure(run(with_model("compare", {"--steps", "2", "--budget", "1kB"})), 3, "[");
}

}  // namespace
}  // namespace remat::cli

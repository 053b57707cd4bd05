// Budgets that are too small, as a user of the command meets them.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"
#include "support/system_files.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

class BudgetCommandTest : public test::TrainingFixture {
 protected:
  int64_t largest_peak(const std::string& name) const {
    int64_t most = 0;
    const auto file = json(name);
    for (const auto& step : file.at("steps")) most = std::max(most, step.at("peak_bytes").get<int64_t>());
    return most;
  }
};

TEST_F(BudgetCommandTest, ABudgetThatIsTooSmallHasItsOwnCodeAndLosesNothing) {
  const auto before_a_step = train({"--steps", "2", "--budget", "1kB"});
  expect_failure(before_a_step, 3, "[train] ");
  EXPECT_TRUE(holds(before_a_step.err, "), the smallest that works, or lower --layers or --width"))
      << before_a_step.err;
  const auto in_a_step = train({"--steps", "2", "--budget", "500kB"});
  expect_failure(in_a_step, 3, "[budget] ");
  EXPECT_TRUE(in_a_step.err.ends_with("), the smallest that works, or lower --batch\n")) << in_a_step.err;
  EXPECT_EQ(in_a_step.err.find("()"), std::string::npos) << "no calls of the library's: " << in_a_step.err;
  EXPECT_EQ(train({"--steps", "2", "--checkpoint", "a.ckpt"}).code, 0);
  expect_failure(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume", "--budget", "1kB"}), 3, "[");
  EXPECT_EQ(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume"}).code, 0);
}

// The number of a refusal works at once, for as many steps as one likes, and an eighth less does not. (Of the MLP the
// optimizer's update takes most, for which no step is refused.)
TEST_F(BudgetCommandTest, ARefusalNamesTheSmallestBudgetThatWorks) {
  for (const auto* model : {"gpt", "mlp"}) {
    const auto steps = [&](int64_t budget) {
      return train({"--model", model, "--steps", "6", "--budget", std::to_string(budget), "--json", "run.json"});
    };
    for (const int64_t small : {1'000, 500'000}) {
      const auto refused = steps(small);
      ASSERT_EQ(refused.code, 3) << refused.err;
      const int64_t named = std::stoll(refused.err.substr(refused.err.find("--budget ") + 9));
      const auto works = steps(named);
      EXPECT_EQ(works.code, 0) << model << ' ' << named << works.err;
      EXPECT_LE(largest_peak("run.json"), named);
      if (model == std::string("gpt")) {
        EXPECT_EQ(steps(named - named / 8).code, 3) << named;
      }
    }
  }
}

// Another program takes memory, and the training shrinks; the bits are plain's.
TEST_F(BudgetCommandTest, APressureBudgetFollowsWhatIsLeft) {
  const test::SystemFiles files;
  const auto losses = [&](const std::string& name) {
    std::vector<uint32_t> bits;
    const auto file = json(name);
    for (const auto& step : file.at("steps")) bits.push_back(step.at("loss_bits").get<uint32_t>());
    return bits;
  };
  const auto within = [&](int64_t left) {
    files.leave(left);
    const auto done = train({"--steps", "3", "--budget", "pressure", "--json", "run.json"},
                            {.environment = {{"REMAT_SYSTEM_ROOT", files.root().string()}}});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_TRUE(holds(done.err, " are left in " + (files.root() / "sys/fs/cgroup/job").string())) << done.err;
    return json("run.json").at("steps").at(0).at("report");
  };
  EXPECT_EQ(train({"--steps", "3", "--plain", "--json", "plain.json"}).code, 0);
  const auto plenty = within(int64_t{1} << 32);
  EXPECT_EQ(plenty.at("values_dropped"), 0);
  EXPECT_EQ(losses("run.json"), losses("plain.json"));
  const int64_t activations = plenty.at("plain_peak_bytes").get<int64_t>() - plenty.at("baseline_bytes").get<int64_t>();
  const auto little = within(activations / 2);
  EXPECT_GT(little.at("values_dropped"), 0);
  EXPECT_LT(little.at("peak_bytes"), plenty.at("peak_bytes"));
  EXPECT_EQ(losses("run.json"), losses("plain.json"));
}

// Who gives a percentage is told one.
TEST_F(BudgetCommandTest, TheRefusalOfAPercentageNamesAPercentageThatWorks) {
  for (const auto* subcommand : {"train", "compare"}) {
    const auto steps = [&](const std::string& budget) {
      return run(with_model(subcommand, {"--steps", "6", "--budget", budget}));
    };
    const auto refused = steps("1%");
    ASSERT_EQ(refused.code, 3) << refused.err;
    const auto begin = refused.err.find("--budget ") + 9, end = refused.err.find(' ', begin);
    const std::string named = refused.err.substr(begin, end - begin);
    ASSERT_EQ(named.back(), '%') << refused.err;
    EXPECT_EQ(steps(named).code, 0) << subcommand << ' ' << named;
    EXPECT_EQ(steps(std::to_string(std::stoi(named) * 4 / 5) + "%").code, 3) << subcommand << ' ' << named;
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

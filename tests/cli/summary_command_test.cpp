// The budget and the peaks in the summary of a run and in its JSON.
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::holds;

class SummaryCommandTest : public test::CommandFixture {
 protected:
  SummaryCommandTest() {
    std::string text;
    for (int i = 0; text.size() < 20000; ++i) text += "the " + std::to_string(i * i % 997) + " of ";
    directory_.write("text", text);
  }

  test::Outcome train(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train", "--data", "text", "--layers", "2"};
    words.insert(words.end(), more.begin(), more.end());
    auto outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
};

// AdamW's first update allocates its state, which no budget of forward and backward can prevent.
TEST_F(SummaryCommandTest, TellsTheOptimizersPeakFromThatWithinTheBudget) {
  const std::vector<std::string> mlp = {"--model", "mlp", "--width", "512", "--batch", "4", "--steps", "2"};
  auto words = mlp;
  words.insert(words.end(), {"--budget", "15MiB"});
  const auto outcome = train(words);
  EXPECT_TRUE(holds(outcome.out, " 14.1 MiB\nbudget  ")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "\noptimizer's peak  ")) << outcome.out;
  EXPECT_FALSE(holds(train(mlp).out, "optimizer's"));
}

// The first step of a share has no budget: what it takes is not set against the others'.
TEST_F(SummaryCommandTest, AShareHasTheBudgetOfTheStepsThatItHeldFor) {
  const std::vector<std::string> gpt = {"--width", "32", "--heads",  "2",   "--seq",  "32",
                                        "--batch", "16", "--budget", "60%", "--json", "run.json"};
  auto words = gpt;
  words.insert(words.end(), {"--steps", "3"});
  const auto outcome = train(words);
  const auto run = json("run.json");
  const auto& last = run.at("steps").back().at("report");
  EXPECT_EQ(run.at("budget_bytes"), last.at("budget_bytes"));
  int64_t highest = 0;
  for (size_t i = 1; i < 3; ++i) {
    highest = std::max(highest, run.at("steps").at(i).at("report").at("peak_bytes").get<int64_t>());
  }
  EXPECT_LE(highest, run.at("budget_bytes").get<int64_t>());
  EXPECT_FALSE(holds(outcome.out, "optimizer's peak")) << outcome.out;
  words = gpt;
  words.insert(words.end(), {"--steps", "1"});
  train(words);
  EXPECT_FALSE(json("run.json").contains("budget_bytes"));
}

}  // namespace
}  // namespace remat::cli

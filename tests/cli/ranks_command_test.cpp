// `remat train` on several processes.
#include <bit>
#include <thread>

#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

class RanksCommandTest : public test::TrainingFixture {
 protected:
  /// Loss bits of each step.
  std::vector<uint32_t> losses(const Words& more) const {
    const auto outcome = train(joined({"--steps", "5", "--json", "run.json"}, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<uint32_t> result;
    const auto run = json("run.json");
    for (const auto& step : run.at("steps")) result.push_back(step.at("loss_bits"));
    EXPECT_EQ(result.size(), 5U);
    return result;
  }

  static float number(uint32_t bits) { return std::bit_cast<float>(bits); }
};

TEST_F(RanksCommandTest, TheSameBitsWithinABudget) {
  for (const Words& way : {Words{"--ranks", "2"}, Words{"--ranks", "2", "--shard"}}) {
    Words plain = way, within = way;
    plain.emplace_back("--plain");
    within.insert(within.end(), {"--budget", "70%"});
    const auto expected = losses(plain);
    EXPECT_EQ(expected, losses(within)) << way.back();
    const auto last = json("run.json").at("steps").back();
    EXPECT_GT(last.at("report").at("values_dropped"), 0);
    EXPECT_LE(last.at("report").at("peak_bytes"), last.at("report").at("budget_bytes"));
    EXPECT_EQ(last.at("rank_peak_bytes").size(), 2U);
  }
}

TEST_F(RanksCommandTest, TheLossesOfOneProcessWithTheSameBatch) {
  const std::vector<uint32_t> one = losses({"--dropout", "0"});
  for (const Words& way : {Words{"--ranks", "2"}, Words{"--ranks", "2", "--shard"}, Words{"--ranks", "4", "--shard"}}) {
    Words words = way;
    words.insert(words.end(), {"--dropout", "0"});
    const std::vector<uint32_t> several = losses(words);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(number(several[i]), number(one[i]), 1e-4) << way[1];
  }
}

TEST_F(RanksCommandTest, ShardsTakeLessMemoryThanCopies) {
  losses({"--ranks", "2", "--plain", "--width", "256", "--batch", "2"});
  const auto copies = json("run.json").at("steps").back().at("peak_bytes").get<int64_t>();
  losses({"--ranks", "2", "--plain", "--width", "256", "--batch", "2", "--shard"});
  EXPECT_LT(json("run.json").at("steps").back().at("peak_bytes").get<int64_t>(), 0.75 * static_cast<double>(copies));
}

TEST_F(RanksCommandTest, ABudgetThatIsTooSmallIsRefusedOnceWithItsNumber) {
  const auto outcome = train({"--steps", "3", "--ranks", "2", "--shard", "--budget", "300KiB"});
  expect_failure(outcome, 3, "[budget] ");
}

TEST_F(RanksCommandTest, OptionsThatDoNotGoTogether) {
  expect_failure(train({"--ranks", "3"}), 2, "--batch 16 is not a multiple of --ranks 3");
  expect_failure(train({"--shard"}), 2, "--shard has no effect with --ranks 1");
  expect_failure(train({"--ranks", "2", "--checkpoint", "a"}), 2, "--checkpoint has no effect with --ranks 2 yet");
}

TEST_F(RanksCommandTest, AsTorchrunStartsThem) {
  const auto rank = [&](int number, const std::string& port, const std::string& file) {
    test::Setting setting;
    setting.environment = {
        {"RANK", std::to_string(number)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
    return train({"--steps", "3", "--shard", "--json", file}, setting);
  };
  const std::string port = std::to_string(20000 + getpid() % 20000);
  test::Outcome second;
  std::thread other([&] { second = rank(1, port, "second.json"); });
  const auto first = rank(0, port, "first.json");
  other.join();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_TRUE(second.out.empty()) << second.out;
  EXPECT_EQ(json("first.json").at("steps").size(), 3U);
  expect_failure(train({"--steps", "1"}, {.environment = {{"RANK", "x"}, {"WORLD_SIZE", "2"}}}), 1, "RANK is \"x\"");
}

}  // namespace
}  // namespace remat::cli

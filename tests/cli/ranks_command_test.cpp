// `remat train` on several processes.
#include <bit>
#include <csignal>

#include <nlohmann/json.hpp>

#include "cli/ranks_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

using RanksCommandTest = test::RanksFixture;

TEST_F(RanksCommandTest, TheSameBitsWithinABudget) {
  for (const Words& way : ways()) {
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

TEST_F(RanksCommandTest, EveryWayToTrainHasTheSameBitsWithinABudget) {
  for (const Words& how : {Words{"--accumulate", "3"}, Words{"--clip", "0.1"}, Words{"--lora", "2"},
                           Words{"--optimizer-in-backward"}, Words{"--accumulate", "3", "--optimizer-in-backward"}}) {
    const auto one = losses(joined({"--dropout", "0"}, how));
    for (const Words& way : ways()) {
      const Words words = joined(joined(way, how), {"--dropout", "0"});
      const auto several = losses(joined(words, {"--plain"}));
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(number(several[i]), number(one[i]), 1e-4) << way.back() << ' ' << how[0];
      }
      EXPECT_EQ(losses(joined(words, {"--budget", "75%"})), several) << way.back() << ' ' << how[0];
    }
  }
}

TEST_F(RanksCommandTest, HeadsInTilesHaveTheBitsOfPlain) {
  for (const Words& way : ways()) {
    for (const Words& how : {Words{}, Words{"--lora", "2"}}) {
      const Words words = joined(joined(way, how), {"--seq", "64"});
      const auto plain = losses(joined(words, {"--plain"}));
      EXPECT_EQ(losses(joined(words, {"--head", "tiles", "--budget", "80%"})), plain) << way.back();
      EXPECT_GT(json("run.json").at("steps").back().at("head").at("rows"), 0) << way.back();
    }
  }
}

TEST_F(RanksCommandTest, UpdatesInBackwardHaveTheBitsOfThoseAfterIt) {
  for (const Words& way : ways())
    EXPECT_EQ(losses(way), losses(joined(way, {"--optimizer-in-backward"}))) << way.back();
}

// Each process has a file.
TEST_F(RanksCommandTest, StateInFilesHasTheSameBits) {
  for (const Words& way : ways()) {
    const Words words = joined(way, {"--layers", "3", "--width", "96", "--optimizer-in-backward"});
    const auto resident = losses(words);
    EXPECT_EQ(losses(joined(words, {"--page-optimizer", "."})), resident) << way.back();
    EXPECT_GT(json("run.json").at("paging").at("read_bytes"), 0);
    const Words saved = joined(words, {"--page-optimizer", ".", "--checkpoint", way.back() + ".ckpt"});
    ASSERT_EQ(train(joined(saved, {"--steps", "3"})).code, 0);
    ASSERT_EQ(train(joined(saved, {"--steps", "5", "--resume", "--json", "rest.json"})).code, 0);
    EXPECT_EQ(steps("rest.json"), (std::map<int64_t, uint32_t>{{4, resident[3]}, {5, resident[4]}})) << way.back();
  }
}

TEST_F(RanksCommandTest, FrozenWeightsInFilesHaveTheSameBits) {
  const Words words = {"--ranks", "2", "--lora", "2", "--layers", "3", "--width", "160"};
  EXPECT_EQ(losses(joined(words, {"--page-weights", "."})), losses(words));
  expect_failure(train(joined(words, {"--shard", "--page-weights", "."})), 2,
                 "--page-weights has no effect with --shard");
}

TEST_F(RanksCommandTest, AdaptersBesideFrozenShardsContinueWithTheSameBits) {
  const Words words = {"--ranks", "2", "--shard", "--lora", "2", "--checkpoint", "lora.ckpt"};
  const auto whole = losses({"--ranks", "2", "--shard", "--lora", "2"});
  EXPECT_EQ(train(joined(words, {"--steps", "3"})).code, 0);
  const auto rest = train(joined(words, {"--steps", "5", "--resume", "--json", "rest.json"}));
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(steps("rest.json"), (std::map<int64_t, uint32_t>{{4, whole[3]}, {5, whole[4]}}));
}

TEST_F(RanksCommandTest, ShardsTakeLessMemoryThanCopies) {
  // Of five steps the lowest peak: where one process is ahead, Gloo holds what it has sent.
  const auto peak = [&](const Words& more) {
    losses(joined({"--ranks", "2", "--plain", "--width", "256", "--batch", "2"}, more));
    std::vector<int64_t> peaks;
    const auto run = json("run.json");
    for (const auto& step : run.at("steps")) peaks.push_back(step.at("peak_bytes"));
    return static_cast<double>(std::ranges::min(peaks));
  };
  const double copies = peak({});
  EXPECT_LT(peak({"--shard"}), 0.75 * copies);
}

TEST_F(RanksCommandTest, ABudgetThatIsTooSmallIsRefusedOnceWithItsNumber) {
  const auto outcome = train({"--steps", "3", "--ranks", "2", "--shard", "--budget", "300KiB"});
  expect_failure(outcome, 3, "[budget] ");
}

// What collectives leave to the process group's own thread would count in some steps and not in others.
TEST_F(RanksCommandTest, ARefusalNamesABudgetThatWorksInEveryStep) {
  for (const Words& way : ways()) {
    const auto refused = train(joined(way, {"--steps", "3", "--budget", "300KiB"}));
    ASSERT_EQ(refused.code, 3) << refused.err;
    const std::string named = std::to_string(std::stoll(refused.err.substr(refused.err.find("--budget ") + 9)));
    for (int run = 0; run < 2; ++run) {
      const auto outcome = train(joined(way, {"--steps", "40", "--budget", named}));
      EXPECT_EQ(outcome.code, 0) << way.back() << ' ' << named << ' ' << outcome.err;
    }
  }
}

TEST_F(RanksCommandTest, OptionsThatDoNotGoTogether) {
  expect_failure(train({"--ranks", "3"}), 2, "--batch 16 is not a multiple of the 3 processes");
  expect_failure(train({"--shard"}), 2, "--shard has no effect with one process");
}

TEST_F(RanksCommandTest, ContinueFromACheckpointWithTheSameBits) {
  for (const Words& way : ways()) {
    const auto whole = losses(joined(way, {"--plain"}));
    const std::string file = way.back() + ".ckpt";
    const Words words = joined(way, {"--budget", "70%", "--checkpoint", file});
    const auto first = train(joined(words, {"--steps", "3"}));
    EXPECT_EQ(first.code, 0) << first.err;
    const auto rest = train(joined(words, {"--steps", "5", "--resume", "--json", "rest.json"}));
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_TRUE(holds(rest.out, "resumed after step 3"));
    EXPECT_EQ(steps("rest.json"), (std::map<int64_t, uint32_t>{{4, whole[3]}, {5, whole[4]}})) << way.back();
  }
}

TEST_F(RanksCommandTest, ACheckpointIsForAsManyProcesses) {
  EXPECT_EQ(train({"--steps", "1", "--ranks", "2", "--checkpoint", "a.ckpt"}).code, 0);
  const Words resume = {"--steps", "2", "--checkpoint", "a.ckpt", "--resume"};
  expect_failure(train(joined(resume, {"--ranks", "4"})), 1, "ranks 2 (here 4)");
  expect_failure(train(resume), 1, "ranks 2 (here left out)");
  expect_failure(train(joined(resume, {"--ranks", "2", "--shard"})), 1, "shard left out (here true)");
}

TEST_F(RanksCommandTest, AnInterruptedTrainingContinuesExactly) {
  for (const Words& way : ways()) {
    const auto whole = losses(way);
    const Words words = joined(way, {"--json", "run.json"});
    const auto stopped =
        train(joined(words, {"--steps", "100000"}), {.signal_after = "train      2/", .signal = SIGINT});
    EXPECT_EQ(stopped.code, 130) << stopped.err;
    EXPECT_TRUE(holds(stopped.out, "--checkpoint remat-interrupted.ckpt --resume"));
    const auto before = steps("run.json");
    const auto last = static_cast<int64_t>(before.size()) + 2;
    const auto resumed =
        train(joined(words, {"--steps", std::to_string(last), "--checkpoint", "remat-interrupted.ckpt", "--resume"}));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    auto all = steps("run.json");
    all.insert(before.begin(), before.end());
    EXPECT_EQ(train(joined(words, {"--plain", "--steps", std::to_string(last)})).code, 0);
    EXPECT_EQ(all, steps("run.json")) << way.back();
    std::filesystem::remove(directory_.path("remat-interrupted.ckpt"));
  }
}

TEST_F(RanksCommandTest, ADiskThatIsFullStopsNoTraining) {
  for (const Words& way : ways()) {
    const auto outcome = train(joined(way, {"--steps", "5", "--checkpoint", "a.ckpt", "--checkpoint-every", "2"}),
                               {.largest_file = 200'000});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(holds(outcome.err, "training goes on"));
    EXPECT_TRUE(holds(outcome.out, "train 5/5"));
    EXPECT_FALSE(exists("a.ckpt"));
  }
}

TEST_F(RanksCommandTest, ABudgetThatRefusesTheFirstStepLeavesTheCheckpoint) {
  const auto outcome = train({"--ranks", "2", "--steps", "1", "--checkpoint", "a.ckpt", "--budget", "8MiB"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto refused =
      train({"--ranks", "2", "--steps", "2", "--checkpoint", "a.ckpt", "--budget", "600KiB", "--resume"});
  expect_failure(refused, 3, "[budget] ");
  EXPECT_EQ(train({"--ranks", "2", "--steps", "2", "--checkpoint", "a.ckpt", "--resume"}).code, 0);
}

TEST_F(RanksCommandTest, AreJudgedAsOneProcessIs) {
  const auto evaluation = [&](const Words& way) {
    const auto outcome = run(joined({"train",   "--data", "text",     "--layers",  "1",       "--width", "32",
                                     "--heads", "2",      "--seq",    "8",         "--batch", "6",       "--steps",
                                     "2",       "--eval", "held_out", "--dropout", "0",       "--json",  "run.json"},
                                    way));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(holds(outcome.out, "held_out: loss "));
    return json("run.json").at("evaluation");
  };
  const auto one = evaluation({});
  // There are 64 batches: of three processes two repeat the last one, which counts once.
  for (const Words& way : {Words{"--ranks", "2"}, Words{"--ranks", "3"}, Words{"--ranks", "3", "--shard"}}) {
    const auto several = evaluation(way);
    EXPECT_NEAR(several.at("before").get<double>(), one.at("before").get<double>(), 1e-6) << "the same parameters";
    EXPECT_NEAR(several.at("after").get<double>(), one.at("after").get<double>(), 1e-4);
  }
}

TEST_F(RanksCommandTest, WriteAPlanAndARunThatCanBeUsed) {
  for (const Words& way : ways()) {
    const auto saved =
        train(joined(way, {"--steps", "4", "--budget", "70%", "--save-plan", "p.json", "--save-run", "run.json"}));
    EXPECT_EQ(saved.code, 0) << saved.err;
    EXPECT_EQ(run({"report", "run.json", "--html", "run.html"}).code, 0);
    EXPECT_TRUE(std::ranges::count(json("run.json").at("layers"), "block1.norm2") == 1);
    // Far more than plain takes: what is dropped is dropped because the plan says so. In the plan's own budget, to the
    // byte, it fits or not by what Gloo holds when a step begins.
    const auto followed =
        train(joined(way, {"--steps", "4", "--budget", "64MiB", "--plan", "p.json", "--json", "followed.json"}));
    EXPECT_EQ(followed.code, 0) << followed.err;
    EXPECT_GT(json("followed.json").at("steps").back().at("report").at("values_dropped"), 0);
    EXPECT_EQ(followed.err, "");
  }
}

}  // namespace
}  // namespace remat::cli

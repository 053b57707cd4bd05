// `remat train` on processes that somebody else starts, as torchrun does.
#include <csignal>
#include <thread>
#include <tuple>
#include <vector>

#include "cli/ranks_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;
using RanksTorchrunCommandTest = test::RanksFixture;

TEST_F(RanksTorchrunCommandTest, AsTorchrunStartsThem) {
  setenv("OMP_NUM_THREADS", "1", /*overwrite=*/1);  // as torchrun does; the bits depend on it
  for (const Words& more : {Words{}, Words{"--shard"}}) {
    Words way = {"--ranks", "2"};
    const auto whole = losses(joined(way, joined(more, {"--plain"})));
    const std::string file = more.empty() ? "copies.ckpt" : "shards.ckpt";
    const Words words =
        joined(more, {"--budget", "70%", "--checkpoint", file, "--json", "run.json", "--eval", "held_out"});
    const Words begun = joined(words, {"--steps", "3"});
    auto [first, second] = torchrun(begun, begun);
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_TRUE(second.out.empty()) << second.out;
    EXPECT_EQ(json("run.json").at("steps").size(), 3U);
    const Words resumed = joined(words, {"--steps", "5", "--resume"});
    std::tie(first, second) = torchrun(resumed, resumed);
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_EQ(steps("run.json"), (std::map<int64_t, uint32_t>{{4, whole[3]}, {5, whole[4]}})) << file;
  }
  unsetenv("OMP_NUM_THREADS");
  expect_failure(train({"--steps", "1"}, {.environment = {{"RANK", "x"}, {"WORLD_SIZE", "2"}}}), 1, "RANK is \"x\"");
}

TEST_F(RanksTorchrunCommandTest, ASignalOfOneStopsAll) {
  const Words words = {"--steps", "100000", "--checkpoint", "a.ckpt"};
  const auto [first, second] = torchrun(words, words, {.signal_after = "train      2/", .signal = SIGTERM});
  EXPECT_EQ(first.code, 128 + SIGTERM) << first.err;
  EXPECT_EQ(second.code, 128 + SIGTERM) << second.err;
  EXPECT_TRUE(exists("a.ckpt"));
}

TEST_F(RanksTorchrunCommandTest, WhereOneCannotBeginNoneWaitsForIt) {
  const Words sound = {"--steps", "2"};
  for (const Words& bad : {Words{"--data", "nowhere"}, Words{"--lora", "2", "--lora-targets", "nothing"},
                           Words{"--seq", "0"}, Words{"--budget", "1kB"}, Words{"--plain", "--budget", "40%"}}) {
    const Words words = joined(sound, bad);
    auto [first, second] = torchrun(sound, words);
    EXPECT_NE(second.code, 0) << bad[0];
    expect_failure(first, 1, "remat: [ranks] rank 1 cannot begin: [");
    std::tie(first, second) = torchrun(words, sound);
    EXPECT_NE(first.code, 0) << bad[0];
    expect_failure(second, 1, "remat: [ranks] rank 0 cannot begin: [");
  }
}

TEST_F(RanksTorchrunCommandTest, OneThatEndsWhileItWaitsEndsTheOthers) {
  const Words words = {"--steps", "2", "--batch", "12"};
  for (const int ended : {0, 1}) {
    const std::string port = unused_port();
    test::Outcome outcomes[2];
    std::vector<std::thread> processes;
    for (const int number : {0, 1}) {  // and the third never comes
      const test::Setting setting =
          number == ended ? test::Setting{.signal = SIGKILL, .signal_seconds = 3} : test::Setting();
      processes.emplace_back([&, number, setting] { outcomes[number] = rank(number, port, words, setting, 3); });
    }
    for (std::thread& each : processes) each.join();
    expect_failure(outcomes[1 - ended], 1, "[ranks] rank " + std::to_string(ended) + " has ended");
  }
}

TEST_F(RanksTorchrunCommandTest, PlacesThatDoNotFitTogetherAreRefused) {
  const Words words = {"--steps", "2", "--batch", "12"};
  const auto start = [&](int first_size, int second_rank, int second_size) {
    const std::string port = unused_port();
    std::vector<test::Outcome> outcomes(3);
    std::thread second([&] { outcomes[1] = rank(second_rank, port, words, {}, second_size); });
    std::thread third([&] { outcomes[2] = rank(1, port, words, {}, first_size); });
    outcomes[0] = rank(0, port, words, {}, first_size);
    second.join();
    third.join();
    return outcomes;
  };
  for (const auto& outcome : start(/*first_size=*/3, /*second_rank=*/1, /*second_size=*/3)) {
    expect_failure(outcome, 1, "two processes have RANK 1");
  }
  for (const auto& outcome : start(/*first_size=*/3, /*second_rank=*/2, /*second_size=*/4)) {
    expect_failure(outcome, 1, "and another process has");
  }
  for (const auto& [port, problem] : {std::pair{"0", "MASTER_PORT is 0"},
                                      {"99999", "MASTER_PORT is 99999"},
                                      {"-5", "MASTER_PORT is \"-5\""},
                                      {"abc", "MASTER_PORT is \"abc\""}}) {
    expect_failure(rank(0, port, words), 1, problem);
  }
}

TEST_F(RanksTorchrunCommandTest, WhatIsJudgedAndKeptMustBeTheSame) {
  directory_.write("other", test::read_all(directory_.path("text")).substr(100, 3500));
  const Words words = {"--steps", "2", "--eval", "held_out"};
  for (const auto& [more, different] : {std::pair<Words, std::string>{{"--eval", "other"}, "eval"},
                                        {{"--budget", "70%"}, "budget"},
                                        {{"--planner", "online"}, "planner"}}) {
    const auto [first, second] = torchrun(words, joined(words, more));
    expect_failure(first, 1, "[ranks] another process was started with other options or data");
    expect_failure(second, 1, "[ranks] rank 0 was started with " + different);
  }
}

TEST_F(RanksTorchrunCommandTest, ARefusalIsThatOfAll) {
  const Words words = {"--steps", "3", "--budget", "10%"};
  const auto [first, second] = torchrun(words, words);
  expect_failure(first, 3, "--budget");
  expect_failure(second, 3, "--budget");
}

}  // namespace
}  // namespace remat::cli

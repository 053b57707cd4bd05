// `remat train` on several processes, one of which ends, fails or is told to stop.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"
#include "data/picture_samples.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

using test::expect_failure;
using test::holds;

class RanksFailuresCommandTest : public test::TrainingFixture {
 protected:
  /// Two classes of 16 pictures, of which one is cut off.
  void write_pictures() const {
    for (const std::string name : {"a", "b"}) {
      fs::create_directories(directory_.path("pictures/" + name));
      for (int i = 0; i < 16; ++i) {
        directory_.write("pictures/" + name + "/" + std::to_string(i) + ".png", data::kRgbPng);
      }
    }
    directory_.write("pictures/b/7.png", data::kRgbPng.substr(0, 60));
  }

  test::Outcome classify(const Words& more) const {
    return run(joined({"train", "--task", "classify", "--data", "pictures", "--model", "vit", "--image-size", "16",
                       "--layers", "1", "--width", "16", "--heads", "2", "--batch", "4", "--steps", "8"},
                      more));
  }

  /// No process, and no file but those that were there and `expected`.
  void expect_nothing_left(const std::set<std::string>& expected) const {
    for (const auto& entry : fs::directory_iterator(directory_.path(""))) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name == "text" || name == "pictures" || expected.contains(name)) << name;
    }
  }
};

TEST_F(RanksFailuresCommandTest, AProcessThatIsKilledBeforeTheyHaveMetEndsTheTraining) {
  // As soon as both are there, the second goes.
  const std::string script =
      "cd '" + directory_.path("") +
      "'; '" REMAT_COMMAND
      "' train --data text --layers 1 --width 16 --heads 2 --seq 16 --batch 4 --steps 2 --ranks 2 >out 2>err & "
      "P=$!; children() { awk -v p=$P '/^PPid:/ && $2 == p { split(FILENAME, f, \"/\"); print f[3] }' "
      "/proc/[0-9]*/status 2>/dev/null; }; while [ $(children | wc -l) -lt 2 ]; do :; done; "
      "kill -9 $(children | sort -n | tail -1); "
      "(sleep 60; kill -9 $P) >/dev/null 2>&1 & W=$!; wait $P; C=$?; kill $W; exit $C";  // ctest waits for open output
  const std::string file = directory_.write("kill.sh", script);
  EXPECT_EQ(WEXITSTATUS(std::system(("bash '" + file + "'").c_str())), 1);
  EXPECT_TRUE(holds(test::read_all(directory_.path("err")), "the process of rank 1 was ended by signal 9"));
}

TEST_F(RanksFailuresCommandTest, TimeoutsSignalsSaveTheTraining) {
  for (const Words& way : {Words{"--ranks", "1"}, Words{"--ranks", "2"}, Words{"--ranks", "2", "--shard"}}) {
    const auto outcome = train(joined(way, {"--steps", "100000", "--checkpoint", "t.ckpt"}),
                               {.signal_after = "train      2/", .signal = SIGTERM, .to_group = true});
    EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
    EXPECT_TRUE(holds(outcome.out, "saved in t.ckpt")) << outcome.out;
    expect_nothing_left({"t.ckpt", "t.ckpt.lock"});
    fs::remove(directory_.path("t.ckpt"));
  }
}

TEST_F(RanksFailuresCommandTest, APictureThatOneCannotReadLosesNoSteps) {
  write_pictures();
  for (const Words& way : {Words{"--ranks", "1"}, Words{"--ranks", "2"}, Words{"--ranks", "2", "--plain"}}) {
    const auto outcome = classify(joined(way, {"--checkpoint", "p.ckpt", "--seed", "3"}));
    expect_failure(outcome, 1, "pictures/b/7.png");
    EXPECT_TRUE(holds(outcome.out, "saved step ")) << outcome.out;
    EXPECT_TRUE(fs::remove(directory_.path("p.ckpt")));
  }
}

TEST_F(RanksFailuresCommandTest, APictureThatOneCannotJudgeIsNamed) {
  write_pictures();
  fs::create_directories(directory_.path("good"));
  for (const std::string name : {"a", "b"}) {
    fs::create_directories(directory_.path("good/" + name));
    for (int i = 0; i < 8; ++i) directory_.write("good/" + name + "/" + std::to_string(i) + ".png", data::kRgbPng);
  }
  const auto outcome = classify({"--data", "good", "--eval", "pictures", "--ranks", "4"});
  expect_failure(outcome, 1, "pictures/b/7.png");
}

TEST_F(RanksFailuresCommandTest, AnEvaluationWithoutANumberIsAnAnswer) {
  directory_.write("held_out", test::read_all(directory_.path("text")).substr(0, 3500));
  const auto outcome =
      train({"--steps", "4", "--lr", "1000", "--seq", "16", "--batch", "8", "--ranks", "2", "--eval", "held_out"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "nan")) << outcome.out;
}

TEST_F(RanksFailuresCommandTest, ASignalEndsAnEvaluation) {
  const auto outcome = train({"--steps", "2", "--ranks", "2", "--eval", "text", "--seq", "128", "--batch", "96",
                              "--width", "64", "--checkpoint", "e.ckpt"},
                             {.signal_after = "train 2/", .signal = SIGINT});
  EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "stopped after step 2; saved in e.ckpt")) << outcome.out;
}

TEST_F(RanksFailuresCommandTest, WhatDoesNotWorkTogetherIsRefusedWhereverItStands) {
  directory_.write("shard.json", R"({"shard": true, "ranks": 2})");
  expect_failure(train({"--config", "shard.json", "--batch", "4", "--accumulate", "4"}), 2,
                 "--accumulate 4 is more than the 2 examples that each process has of --batch 4");
  expect_failure(train({"--config", "shard.json", "--clip", "1", "--optimizer-in-backward"}), 2,
                 "--clip needs all gradients at once");
  EXPECT_EQ(train({"--config", "shard.json", "--ranks", "1", "--steps", "1"}).code, 0);
}

TEST_F(RanksFailuresCommandTest, ClosedStreamsAreNotTakenForConnections) {
  const std::string script = "cd '" + directory_.path("") +
                             "' && '" REMAT_COMMAND
                             "' train --data text --layers 1 --width 16 --heads 2 --seq 16 --batch 4 --steps 2 "
                             "--ranks 2 --json j.json <&- >&- 2>err";
  EXPECT_EQ(WEXITSTATUS(std::system(script.c_str())), 1);
  EXPECT_TRUE(holds(test::read_all(directory_.path("err")), "[output] cannot write to standard output"));
  EXPECT_EQ(json("j.json").at("steps").size(), 2U);
}

}  // namespace
}  // namespace remat::cli

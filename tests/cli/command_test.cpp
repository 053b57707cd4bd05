// Training as a user of the command meets it: exit codes, messages, files.
#include <algorithm>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;
using test::Outcome;
using test::read_all;
using test::Setting;

class CommandTest : public test::TrainingFixture {
 protected:
  // The bits of every loss in a JSON file, by step.
  std::map<int64_t, uint32_t> losses(const std::string& name) const {
    std::map<int64_t, uint32_t> bits;
    const auto file = json(name);
    for (const auto& step : file.at("steps")) bits[step.at("step")] = step.at("loss_bits");
    return bits;
  }

  // What the plan that the last step followed says; 0 where it followed none.
  int64_t last_planned_peak(const std::string& name) const {
    return json(name).at("steps").back().at("report").at("planned_peak_bytes");
  }
};

TEST_F(CommandTest, TrainsAndSaysSo) {
  const auto outcome = train({"--steps", "3", "--json", "run.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(holds(outcome.out, "train 3/3  loss "));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(losses("run.json").size(), 3u);
  EXPECT_GT(json("run.json").at("steps").at(0).at("report").at("operators_recorded"), 0);
}

TEST_F(CommandTest, TheMlpLearnsToo) {
  EXPECT_EQ(train({"--model", "mlp", "--steps", "40", "--batch", "32", "--json", "run.json"}).code, 0);
  const auto steps = json("run.json").at("steps");
  EXPECT_LT(steps.back().at("loss"), steps.front().at("loss").get<double>() - 1);
}

TEST_F(CommandTest, ABudgetDoesNotChangeTheLosses) {
  EXPECT_EQ(train({"--steps", "5", "--plain", "--json", "plain.json"}).code, 0);
  EXPECT_EQ(train({"--steps", "5", "--budget", "60%", "--json", "remat.json"}).code, 0);
  EXPECT_EQ(losses("plain.json"), losses("remat.json"));
}

TEST_F(CommandTest, AHeadInTilesChangesNoLossAndSaysWhatItIs) {
  const auto losses = [&](const Words& more) {
    const auto outcome = train(joined({"--steps", "3", "--json", "run.json"}, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<uint32_t> bits;
    for (const auto& step : json("run.json").at("steps")) bits.push_back(step.at("loss_bits"));
    return std::pair(bits, outcome.out);
  };
  const auto [plain, plain_text] = losses({"--plain"});
  const auto [tiled, text] = losses({"--head", "tiles", "--precision", "float32"});
  EXPECT_EQ(plain, tiled);
  EXPECT_TRUE(holds(text, "head: tiles of "));
  EXPECT_EQ(plain_text.find("head:"), std::string::npos);
  EXPECT_GT(json("run.json").at("steps")[0].at("head").at("rows"), 0);
  EXPECT_EQ(losses({"--head", "tiles", "--accumulate", "2"}).first,
            losses({"--head", "whole", "--accumulate", "2"}).first);
  EXPECT_EQ(losses({"--head", "tiles", "--lora", "2"}).first, losses({"--plain", "--lora", "2"}).first);
  EXPECT_EQ(losses({"--head", "tiles", "--precision", "bf16"}).first, losses({"--plain", "--precision", "bf16"}).first);
  expect_failure(train({"--plain", "--head", "tiles"}), 2, "--head has no effect with --plain");
}

TEST_F(CommandTest, UpdatesInBackwardChangeNoLossAndLeaveNoGradients) {
  EXPECT_EQ(train({"--steps", "5", "--json", "after.json"}).code, 0);
  EXPECT_EQ(train({"--steps", "5", "--optimizer-in-backward", "--json", "inside.json"}).code, 0);
  EXPECT_EQ(losses("after.json"), losses("inside.json"));
  const auto end = [&](const std::string& name) {
    return json(name).at("steps").back().at("report").at("end_bytes").get<int64_t>();
  };
  EXPECT_LT(end("inside.json"), end("after.json"));
}

TEST_F(CommandTest, ThePlannerAskedForDecides) {
  const Words budget = {"--steps", "3", "--budget", "60%", "--json", "run.json", "--planner"};
  for (const auto& [planner, plans] : {std::pair{"online", false}, std::pair{"auto", true}}) {
    auto words = budget;
    words.emplace_back(planner);
    EXPECT_EQ(train(words).code, 0);
    EXPECT_EQ(last_planned_peak("run.json") > 0, plans) << planner;
    words.insert(words.end(), {"--json", "compare.json"});
    const auto outcome = run(with_model("compare", words));
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    const auto steps = json("compare.json").at("remat").at("steps");
    EXPECT_EQ(steps.back().at("report").at("planned_peak_bytes") > 0, plans) << planner;
  }
}

TEST_F(CommandTest, APlanIsSavedAndFollowed) {
  ASSERT_EQ(train({"--steps", "3", "--budget", "60%", "--save-plan", "plan.json", "--json", "a.json"}).code, 0);
  EXPECT_EQ(json("plan.json").at("planner"), "auto");
  const Words follow = {"--steps", "3", "--budget", "60%", "--planner", "online", "--plan", "plan.json"};
  auto words = follow;
  words.insert(words.end(), {"--json", "b.json"});
  ASSERT_EQ(train(words).code, 0);
  EXPECT_GT(last_planned_peak("b.json"), 0);
  EXPECT_EQ(losses("a.json"), losses("b.json"));
  expect_failure(train({"--plan", "text"}), 1, "[plan] 'text': no JSON");
  expect_failure(train({"--plan", "none.json"}), 1, "[plan] cannot read 'none.json'");
  EXPECT_EQ(train(follow).err, "");
  words = follow;
  words.insert(words.end(), {"--layers", "1", "--steps", "5"});
  const auto ignored = train(words);
  EXPECT_EQ(ignored.code, 0);
  EXPECT_EQ(
      ignored.err,
      "\nremat: [plan] step 1 did not follow 'plan.json': the plan given is of another graph; record the step with "
      "the same options, or give a larger --budget\n")
      << "once";
}

TEST_F(CommandTest, WithoutAPlanToSaveTheTrainingIsNotLost) {
  const auto outcome = train({"--steps", "1", "--save-plan", "p.json", "--json", "a.json"});
  expect_failure(outcome, 1, "[save-plan] no step has followed a plan to its end: the first is recorded");
  EXPECT_TRUE(holds(outcome.err, "give more --steps, a larger --budget or another --planner"));
  EXPECT_TRUE(holds(outcome.out, "time per step"));
  EXPECT_EQ(losses("a.json").size(), 1);
}

// It decides nothing of the losses.
TEST_F(CommandTest, ACheckpointContinuesWithAnotherPlanner) {
  const Words common = {"--budget", "60%", "--checkpoint", "a.ckpt", "--json", "run.json"};
  auto words = common;
  words.insert(words.end(), {"--steps", "3", "--planner", "online"});
  EXPECT_EQ(train(words).code, 0);
  words = common;
  words.insert(words.end(), {"--steps", "6", "--planner", "auto", "--resume"});
  const auto resumed = train(words);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(train({"--steps", "6", "--plain", "--json", "plain.json"}).code, 0);
  auto plain = losses("plain.json");
  for (int64_t step = 1; step <= 3; ++step) plain.erase(step);
  EXPECT_EQ(losses("run.json"), plain);
}

// Bits and data position over a break: the same losses as in one go.
TEST_F(CommandTest, AnInterruptedRunContinuesExactly) {
  for (const auto& [signal, budget] : {std::pair{SIGINT, "60%"}, std::pair{SIGTERM, "device"}}) {
    const auto name = std::to_string(signal);
    const Words budget_words = {"--budget", budget, "--checkpoint", name + ".ckpt", "--json", name + ".json"};
    auto words = budget_words;
    words.insert(words.end(), {"--steps", "100000"});
    const auto stopped = train(words, {.signal_after = "train      3/", .signal = signal});
    EXPECT_EQ(stopped.code, 128 + signal);
    EXPECT_TRUE(holds(stopped.out, "continue with:\n  remat train "));
    const auto before = losses(name + ".json");
    ASSERT_GE(before.size(), 3u);
    ASSERT_LT(before.size(), 5000u);

    const auto last = std::to_string(before.size() + 5);
    words = budget_words;
    words.insert(words.end(), {"--steps", last, "--resume"});
    const auto resumed = train(words);
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(holds(resumed.out, "resumed after step " + std::to_string(before.size())));
    auto all = losses(name + ".json");
    EXPECT_EQ(all.begin()->first, static_cast<int64_t>(before.size()) + 1);
    all.insert(before.begin(), before.end());

    EXPECT_EQ(train({"--plain", "--steps", last, "--json", "whole.json"}).code, 0);
    EXPECT_EQ(all, losses("whole.json"));
  }
}

TEST_F(CommandTest, AnInterruptWithoutCheckpointStillSaves) {
  const auto stopped = train({"--steps", "100000"}, {.signal_after = "train      2/", .signal = SIGINT});
  EXPECT_EQ(stopped.code, 130);
  EXPECT_TRUE(holds(stopped.out, "--checkpoint remat-interrupted.ckpt --resume"));
  EXPECT_TRUE(exists("remat-interrupted.ckpt"));
}

TEST_F(CommandTest, AnInterruptEndsARunWhoseOutputNobodyReads) {
  const auto stopped = train({"--steps", "100000", "--checkpoint", "a.ckpt"},
                             {.signal_after = "train      2/", .signal = SIGINT, .reader_stops = true});
  EXPECT_EQ(stopped.code, 130);
  EXPECT_EQ(stopped.err, "");
  EXPECT_EQ(directory_.names(), (Words{"a.ckpt", "text"}));
}

TEST_F(CommandTest, ARunThatIsKilledContinuesFromItsLastCheckpoint) {
  const auto killed = train({"--steps", "100000", "--checkpoint", "a.ckpt", "--checkpoint-every", "2"},
                            {.signal_after = "train      4/", .signal = SIGKILL});
  EXPECT_EQ(killed.code, 1000 + SIGKILL);
  const auto resumed = train({"--steps", "100000", "--checkpoint", "a.ckpt", "--resume"},
                             {.signal_after = "resumed after step", .signal = SIGINT});
  EXPECT_EQ(resumed.code, 130) << resumed.err;
  const auto step = std::stoi(resumed.out.substr(resumed.out.find("after step ") + 11));
  EXPECT_GE(step, 2);
  EXPECT_EQ(step % 2, 0);
}

TEST_F(CommandTest, AnEarlierCheckpointIsNotOverwrittenUnasked) {
  EXPECT_EQ(train({"--steps", "2", "--checkpoint", "a.ckpt"}).code, 0);
  const auto before = read_all(directory_.path("a.ckpt"));
  expect_failure(train({"--steps", "2", "--checkpoint", "a.ckpt"}), 2,
                 "[checkpoint] 'a.ckpt' exists; continue it with");
  EXPECT_TRUE(read_all(directory_.path("a.ckpt")) == before);
  expect_failure(train({"--steps", "2", "--checkpoint", "nowhere/a.ckpt"}), 1,
                 "[checkpoint] cannot write 'nowhere/a.ckpt' (No such file or directory)");
}

TEST_F(CommandTest, WhereNoStepIsLeftTheResultsSaySo) {
  const Words words = {"--steps", "2", "--checkpoint", "a.ckpt", "--json", "run.json"};
  EXPECT_EQ(train(words).code, 0);
  EXPECT_TRUE(holds(train(joined(words, {"--resume"})).out, "nothing to do"));
  EXPECT_TRUE(json("run.json").at("steps").empty());
}

TEST_F(CommandTest, ACheckpointOfAnotherTrainingIsRefused) {
  EXPECT_EQ(train({"--steps", "2", "--checkpoint", "a.ckpt"}).code, 0);
  expect_failure(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume", "--layers", "3"}), 1,
                 "[checkpoint] 'a.ckpt' is of another training: layers 2 (here 3); give the same options");
  expect_failure(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume", "--seed", "3"}), 1, "seed 0 (here 3)");
  directory_.write("other", std::string(20000, 'x'));
  expect_failure(train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume", "--data", "other"}), 1,
                 "was trained on another text");
}

TEST_F(CommandTest, ADamagedCheckpointIsRefused) {
  EXPECT_EQ(train({"--steps", "2", "--checkpoint", "a.ckpt"}).code, 0);
  const auto good = read_all(directory_.path("a.ckpt"));
  const Words resume = {"--steps", "4", "--checkpoint", "a.ckpt", "--resume"};
  auto bad = good;
  bad[good.size() / 2] ^= 1;
  directory_.write("a.ckpt", bad);
  expect_failure(train(resume), 1, "is damaged: its checksum is wrong");
  directory_.write("a.ckpt", good.substr(0, good.size() / 2));
  expect_failure(train(resume), 1, "bytes do not end as a checkpoint does: it was cut, or added to");
  directory_.write("a.ckpt", "not a checkpoint at all");
  expect_failure(train(resume), 1, "is not a checkpoint of remat");
  std::filesystem::remove(directory_.path("a.ckpt"));
  expect_failure(train(resume), 1, "No such file");
}

TEST_F(CommandTest, AFullDiskFailsAndKeepsTheOldCheckpoint) {
  EXPECT_EQ(train({"--steps", "2", "--checkpoint", "a.ckpt"}).code, 0);
  const auto before = read_all(directory_.path("a.ckpt"));
  const auto outcome = train({"--steps", "4", "--checkpoint", "a.ckpt", "--resume"}, {.largest_file = 50000});
  expect_failure(outcome, 1, "(File too large); an earlier checkpoint is untouched");
  EXPECT_TRUE(read_all(directory_.path("a.ckpt")) == before);
  EXPECT_EQ(directory_.names(), (Words{"a.ckpt", "text"}));
}

TEST_F(CommandTest, AFullDiskAmidTrainingDoesNotEndIt) {
  const auto outcome =
      train({"--steps", "5", "--checkpoint", "a.ckpt", "--checkpoint-every", "2"}, {.largest_file = 50000});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(holds(outcome.err, "; training goes on\n"));
  EXPECT_TRUE(holds(outcome.out, "train 5/5"));
}

TEST_F(CommandTest, PathsThatCannotBeWrittenAreFoundBeforeTraining) {
  for (const Words& words :
       {Words{"--json", "no/such.json"}, Words{"--json", "."}, Words{"--checkpoint", "no/such.ckpt"},
        Words{"--checkpoint", "/dev/full"}, Words{"--checkpoint", "."}}) {
    auto all = words;
    all.insert(all.end(), {"--steps", "2"});
    const auto outcome = train(all);
    expect_failure(outcome, 1, words[0] == "--json" ? "[json]" : "[checkpoint]");
    EXPECT_EQ(outcome.out, "");
  }
  expect_failure(train({"--steps", "2", "--json", "/dev/full"}), 1, "[json] cannot write '/dev/full' (No space left");
}

TEST_F(CommandTest, TextsThatCannotBeReadAreNamed) {
  const auto with = [&](const std::string& data) { return run({"train", "--steps", "1", "--data", data}); };
  expect_failure(with("nowhere"), 1, "[data] cannot read 'nowhere' (No such file or directory)");
  expect_failure(with("."), 1, "is a directory");
  directory_.write("empty", "");
  expect_failure(with("empty"), 1, "has 0 bytes, one example needs 129");
}

TEST_F(CommandTest, WrongUsageHasItsOwnCode) {
  expect_failure(run({}), 2, "see: remat --help");
  expect_failure(run({"train"}), 2, "--data is missing");
  expect_failure(train({"--budget", "lots"}), 2, "lots");
  expect_failure(train({"--budget", "-5"}), 2, "-5");
  expect_failure(train({"--layers", "none"}), 2, "see: remat train --help");
  expect_failure(train({"--config", "nowhere"}), 2, "[config]");
  expect_failure(train({"--config", "."}), 2, "[config] '.' is a directory; give a file");
}

TEST_F(CommandTest, AModelTooLargeForTheMachineIsNotBuilt) {
  const Words huge = {"--layers", "100000", "--width", "65536"};
  expect_failure(train(huge), 1, "[train] 100000 layers of width 65536 have ");
  expect_failure(run(with_model("compare", huge)), 1, "lower --layers or --width");
  expect_failure(train({"--layers", "1000000000000"}), 2, "--layers: '1000000000000' is not a number from 1 to 100000");
}

TEST_F(CommandTest, ADivergedLossStopsTheRun) {
  expect_failure(train({"--steps", "50", "--lr", "1000", "--model", "mlp"}), 1, "lower --lr");
}

TEST_F(CommandTest, ATerminalGetsABarOfItsWidth) {
  const auto outcome = train({"--steps", "3"}, {.environment = {{"NO_COLOR", "1"}}, .columns = 60});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(holds(outcome.out, "\rtrain 3/3  loss "));
  EXPECT_EQ(outcome.out.find("\x1b[3"), std::string::npos);
  EXPECT_EQ(outcome.out.find("tokens/s"), std::string::npos);
  EXPECT_TRUE(holds(train({"--steps", "3"}, {.columns = 150}).out, "\x1b[32m"));
}

TEST_F(CommandTest, ComparePrintsATableAndFindsEqualBits) {
  const auto outcome = run(with_model("compare", {"--steps", "4", "--budget", "60%", "--json", "compare.json"}));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "bit-identical: yes."));
  EXPECT_TRUE(holds(outcome.out, "within the budget: yes"));
  const auto result = json("compare.json");
  EXPECT_TRUE(result.at("bit_identical"));
  EXPECT_LE(result.at("remat").at("peak_bytes"), result.at("budget_bytes"));
  EXPECT_LT(result.at("remat").at("peak_bytes"), result.at("plain").at("peak_bytes"));
}

// The steps of the second training begin while the first still has some to take.
TEST_F(CommandTest, CompareTakesStepsInTurnInTwoProcesses) {
  const auto outcome = run(with_model("compare", {"--steps", "6", "--budget", "50%", "--json", "compare.json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const auto* line : {"\nplain 2/6  loss ", "\nboth 1/6  loss ", "\nboth 6/6  loss "}) {
    EXPECT_TRUE(holds(outcome.out, line));
  }
  EXPECT_FALSE(holds(outcome.out, "\nplain 3/6"));
  EXPECT_TRUE(holds(outcome.out, " x plain's time  peak "));
  const auto result = json("compare.json");
  // Neither counts the other's tensors.
  EXPECT_EQ(result.at("plain").at("baseline_bytes"), result.at("remat").at("baseline_bytes"));
  EXPECT_EQ(result.at("plain").at("steps").size(), 6u);
  const auto last = result.at("remat").at("steps").back();
  EXPECT_EQ(last.at("loss_bits"), result.at("plain").at("steps").back().at("loss_bits"));
  EXPECT_GT(last.at("report").at("operators_replayed"), 0) << "the report has come over";
}

TEST_F(CommandTest, CompareOfOneStepHasABudgetToo) {
  const auto outcome = run(with_model("compare", {"--steps", "1", "--budget", "60%"}));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
}

TEST_F(CommandTest, AnErrorInOneOfTheProcessesOfCompareEndsBoth) {
  expect_failure(run(with_model("compare", {"--steps", "50", "--lr", "1000", "--model", "mlp"})), 1, "lower --lr");
  const auto outcome = run(with_model("compare", {"--steps", "4", "--budget", "2%"}));
  expect_failure(outcome, 3, "), the smallest that works, or lower --batch");
  EXPECT_EQ(outcome.err.find("()"), std::string::npos) << "no calls of the library's: " << outcome.err;
}

TEST_F(CommandTest, AnInterruptEndsBothProcessesOfCompare) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    // Standard output is a pipe: it would not end while a process had it open.
    const auto outcome = run(with_model("compare", {"--steps", "100000", "--budget", "60%"}),
                             {.signal_after = "both      3/", .signal = signal});
    EXPECT_EQ(outcome.code, signal == SIGKILL ? 1000 + SIGKILL : 128 + signal) << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(CommandTest, TheSecondRunOnACheckpointIsRefusedWhileTheFirstLives) {
  const Words on_it = {"--steps", "100000", "--checkpoint", "a.ckpt"};
  Outcome second, other, resumed;
  const auto stopped = [&] {
    Setting setting{.signal_after = "train      3/", .signal = SIGINT};
    setting.before_signal = [&] {
      second = train({"--steps", "1", "--checkpoint", "a.ckpt"});
      std::filesystem::create_symlink("a.ckpt", directory_.path("link.ckpt"));
      resumed = train({"--steps", "9", "--checkpoint", "link.ckpt", "--resume"});
      other = train({"--steps", "1", "--checkpoint", "b.ckpt"});
    };
    return train(on_it, setting);
  }();
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  expect_failure(second, 1, "[checkpoint] 'a.ckpt' is another run's that goes on (process ");
  expect_failure(resumed, 1, "[checkpoint] 'link.ckpt' is another run's that goes on");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(directory_.names(), (Words{"a.ckpt", "b.ckpt", "link.ckpt", "text"}));
}

// The lock is the system's, and gone with the process: the file that is left says nothing.
TEST_F(CommandTest, ARunThatWasKilledHoldsNoCheckpoint) {
  const auto killed =
      train({"--steps", "100000", "--checkpoint", "a.ckpt"}, {.signal_after = "train      2/", .signal = SIGKILL});
  EXPECT_EQ(killed.code, 1000 + SIGKILL);
  EXPECT_TRUE(exists("a.ckpt.lock"));
  for (const auto* unfinished : {"a.ckpt.part-123", "a.ckpt.part-123-1"}) directory_.write(unfinished, "half");
  EXPECT_EQ(train({"--steps", "1", "--checkpoint", "a.ckpt"}).code, 0);
  EXPECT_EQ(directory_.names(), (Words{"a.ckpt", "text"}));
}

}  // namespace
}  // namespace remat::cli

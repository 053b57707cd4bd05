// `remat train --page-optimizer`: the optimizer's state in a file.
#include <csignal>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;
using test::holds;

class PageOptimizerCommandTest : public test::TrainingFixture {
 protected:
  static inline const Words kPaged = {"--page-optimizer", "."};

  /// Of an MLP whose matrices are large enough to be paged.
  test::Outcome train(const Words& more, const test::Setting& setting = {}) const {
    return test::TrainingFixture::train(
        joined({"--model", "mlp", "--layers", "4", "--width", "160", "--batch", "512"}, more), setting);
  }

  std::map<int64_t, uint32_t> losses(const std::string& name) const {
    std::map<int64_t, uint32_t> bits;
    const auto file = json(name);
    for (const auto& step : file.at("steps")) bits[step.at("step")] = step.at("loss_bits");
    return bits;
  }

  std::map<int64_t, uint32_t> losses_of(const Words& more) const {
    const auto done = train(joined(more, {"--json", "run.json"}));
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(done.err, "");
    return losses("run.json");
  }

  int64_t end_bytes(const std::string& name) const {
    return json(name).at("steps").back().at("report").at("end_bytes");
  }
};

TEST_F(PageOptimizerCommandTest, TheSameBitsAndTheStateIsNotInMemory) {
  const auto plain = losses_of({"--steps", "5", "--plain"});
  ASSERT_EQ(losses_of({"--steps", "5"}), plain);
  const int64_t resident = end_bytes("run.json");
  for (const Words& how :
       {Words{}, Words{"--budget", "70%"}, Words{"--optimizer-in-backward"},
        Words{"--optimizer-in-backward", "--budget", "70%"}, Words{"--accumulate", "1", "--plain"}}) {
    EXPECT_EQ(losses_of(joined(joined({"--steps", "5"}, kPaged), how)), plain) << how.size();
    const auto paging = json("run.json").at("paging");
    const int64_t state = paging.at("paged_bytes");
    EXPECT_GT(state, 2 * 4 * 160 * 160 * 4);
    EXPECT_EQ(paging.at("written_bytes"), 5 * state);
    EXPECT_EQ(paging.at("read_bytes"), 4 * state) << "not once more at the end";
    if (how.empty()) {
      EXPECT_LT(end_bytes("run.json"), resident - state / 2);
    }
  }
  for (const Words& how : {Words{"--clip", "0.1"}, Words{"--accumulate", "3", "--optimizer-in-backward"}}) {
    const Words words = joined({"--steps", "5"}, how);
    EXPECT_EQ(losses_of(joined(words, kPaged)), losses_of(words)) << how[0];
  }
}

TEST_F(PageOptimizerCommandTest, GradientsInAFileHaveTheSameBits) {
  for (const Words& how :
       {Words{"--clip", "0.1"}, Words{"--accumulate", "3"}, Words{"--accumulate", "3", "--clip", "0.1"},
        Words{"--clip", "0.1", "--budget", "70%"}, Words{"--clip", "0.1", "--plain"}}) {
    const Words words = joined({"--steps", "4"}, how);
    const auto expected = losses_of(words);
    EXPECT_EQ(losses_of(joined(words, {"--page-gradients", "."})), expected) << how[0];
    EXPECT_GT(json("run.json").at("gradient_paging").at("written_bytes"), 4 * 4 * 160 * 160 * 4);
    EXPECT_EQ(losses_of(joined(joined(words, {"--page-gradients", "."}), kPaged)), expected) << how[0];
  }
  expect_failure(train({"--page-gradients", "100kB:."}), 1, "[page-gradients] gradients take ");
  expect_failure(train({"--page-gradients", ".", "--optimizer-in-backward"}), 2,
                 "--page-gradients has no effect with --optimizer-in-backward");
  expect_failure(train({"--page-gradients", ".", "--ranks", "2"}), 2, "--page-gradients is for one process");
}

TEST_F(PageOptimizerCommandTest, CheckpointsFitTrainingsWithAndWithout) {
  const auto whole = losses_of({"--steps", "5"});
  for (const auto& [first, second] :
       {std::pair{kPaged, kPaged}, std::pair{kPaged, Words()}, std::pair{Words(), kPaged}}) {
    const Words checkpoint = {"--checkpoint", first.empty() ? "b.ckpt" : second.empty() ? "a.ckpt" : "c.ckpt"};
    ASSERT_EQ(train(joined(joined({"--steps", "3", "--checkpoint-every", "2"}, first), checkpoint)).code, 0);
    const auto rest = losses_of(joined(joined({"--steps", "5", "--resume"}, second), checkpoint));
    EXPECT_EQ(rest, (std::map<int64_t, uint32_t>{{4, whole.at(4)}, {5, whole.at(5)}}));
    EXPECT_GT(json("run.json").at("steps").back().at("baseline_bytes"), 4 * 160 * 160 * 4)
        << "parameters are in memory";
  }
}

TEST_F(PageOptimizerCommandTest, AnInterruptSavesWhatIsInTheFile) {
  const Words words = joined({"--optimizer-in-backward", "--checkpoint", "a.ckpt"}, kPaged);
  const auto stopped = train(joined(words, {"--steps", "100000"}), {.signal_after = "train      3/", .signal = SIGINT});
  ASSERT_EQ(stopped.code, 128 + SIGINT) << stopped.err;
  const std::string before = "stopped after step ";
  const int64_t done = std::stoll(stopped.out.substr(stopped.out.find(before) + before.size()));
  const std::string steps = std::to_string(done + 2);
  const auto rest = losses_of(joined(words, {"--resume", "--steps", steps}));
  const auto whole = losses_of({"--steps", steps});
  EXPECT_EQ(rest, (std::map<int64_t, uint32_t>{{done + 1, whole.at(done + 1)}, {done + 2, whole.at(done + 2)}}));
}

TEST_F(PageOptimizerCommandTest, WithoutRoomForTheStateNothingBegins) {
  expect_failure(train({"--page-optimizer", "100kB:."}), 1, "[page-optimizer] the state of AdamW takes ");
  expect_failure(train({"--page-optimizer", "100kB:."}), 1,
                 ", and the file may have 97.7 KiB (100000 bytes); give more");
  expect_failure(train({"--page-optimizer", "nowhere"}), 1, "[spill file] no file can be made in \"nowhere\"");
  expect_failure(train({"--page-optimizer", "1.5x:."}), 2, "--page-optimizer: \"1.5x\" has an unknown unit");
  EXPECT_EQ(train({"--page-optimizer", "20MB:.", "--steps", "2"}).code, 0);
}

// A write that fails is a warning, and the training goes on with the state in memory.
TEST_F(PageOptimizerCommandTest, ADiskThatFillsUpLosesNothing) {
  const auto whole = losses_of({"--steps", "4"});
  const auto done = train(joined({"--steps", "4", "--json", "run.json"}, kPaged), {.largest_file = 300'000});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(holds(done.err, "the state stays in memory, and later writes are tried again")) << done.err;
  EXPECT_EQ(losses("run.json"), whole);
  EXPECT_GT(json("run.json").at("paging").at("unwritten_bytes"), 0);
}

TEST_F(PageOptimizerCommandTest, AGameHasNone) {
  expect_failure(run({"train", "--task", "rl", "--page-optimizer", "."}), 2,
                 "--page-optimizer has no effect with --task rl");
}

}  // namespace
}  // namespace remat::cli

// `remat train --lora --page-weights`: frozen weights in mapped files.
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::cli {
namespace {

using test::expect_failure;

class PageWeightsCommandTest : public test::TrainingFixture {
 protected:
  /// Of a GPT whose matrices, a block's 1.2 MB, are large enough for files.
  test::Outcome train(const Words& more, const test::Setting& setting = {}) const {
    return test::TrainingFixture::train(joined({"--lora", "2", "--layers", "3", "--width", "160"}, more), setting);
  }

  std::map<int64_t, uint32_t> losses_of(const Words& more) const {
    const auto done = train(joined(more, {"--json", "run.json"}));
    EXPECT_EQ(done.code, 0) << done.err;
    std::map<int64_t, uint32_t> bits;
    const auto file = json("run.json");
    for (const auto& step : file.at("steps")) bits[step.at("step")] = step.at("loss_bits");
    return bits;
  }
  int64_t baseline() const { return json("run.json").at("steps").back().at("baseline_bytes"); }
};

TEST_F(PageWeightsCommandTest, TheSameBitsAndWeightsDoNotCount) {
  for (const Words& how : {Words{"--plain"}, Words{"--budget", "70%"}, Words{"--page-optimizer", "."}}) {
    const Words words = joined({"--steps", "4"}, how);
    const auto expected = losses_of(words);
    const int64_t with_weights = baseline();
    EXPECT_EQ(losses_of(joined(words, {"--page-weights", "."})), expected) << how[0];
    EXPECT_LT(baseline(), with_weights - 3 * 12 * 160 * 160 * 4) << "all matrices of three blocks";
  }
  // A budget in which the weights alone would not fit.
  EXPECT_EQ(train({"--steps", "4", "--budget", "3MB"}).code, 3);
  EXPECT_EQ(train({"--steps", "4", "--budget", "3MB", "--batch", "1", "--page-weights", "."}).code, 0);
}

TEST_F(PageWeightsCommandTest, CheckpointsFitTrainingsWithAndWithout) {
  const auto whole = losses_of({"--steps", "5"});
  const std::map<int64_t, uint32_t> rest = {{4, whole.at(4)}, {5, whole.at(5)}};
  ASSERT_EQ(train({"--steps", "3", "--checkpoint", "a.ckpt", "--page-weights", "."}).code, 0);
  ASSERT_EQ(train({"--steps", "3", "--checkpoint", "b.ckpt"}).code, 0);
  EXPECT_EQ(losses_of({"--steps", "5", "--checkpoint", "a.ckpt", "--resume"}), rest);
  EXPECT_EQ(losses_of({"--steps", "5", "--checkpoint", "b.ckpt", "--resume", "--page-weights", "."}), rest);
}

TEST_F(PageWeightsCommandTest, IsRefusedWhereItCannotBe) {
  expect_failure(run(with_model("train", {"--page-weights", "."})), 2, "--page-weights has no effect without --lora");
  expect_failure(train({"--page-weights", "nowhere"}), 1, "[spill file] no file can be made in \"nowhere\"");
  expect_failure(train({"--page-weights", "."}, {.largest_file = 200'000}), 1, " has no place in \".\": ");
}

}  // namespace
}  // namespace remat::cli

#include "cli/progress.h"

#include <regex>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace remat::cli {
namespace {

ProgressState state() {
  return {.label = "train",
          .step = 12,
          .steps = 50,
          .loss = 2.34567F,
          .items_per_second = 3120.4,
          .current_bytes = int64_t{512} << 20,
          .peak_bytes = int64_t{1} << 30,
          .budget_bytes = int64_t{2} << 30,
          .seconds_left = 125};
}

TEST(ProgressTest, AWideTerminalShowsEverything) {
  EXPECT_EQ(progress_bar(state(), 140, /*color=*/false),
            "train 12/50 [=======                       ]  loss 2.3457  3,120 tokens/s  peak 1.00 GiB of 2.00 GiB  "
            "now 512 MiB  2:05 left");
}

TEST(ProgressTest, ANarrowTerminalLeavesOutWhatMattersLeast) {
  EXPECT_EQ(progress_bar(state(), 64, false), "train 12/50  loss 2.3457  peak 1.00 GiB of 2.00 GiB  2:05 left");
  EXPECT_EQ(progress_bar(state(), 30, false), "train 12/50  loss 2.3457");
  EXPECT_EQ(progress_bar(state(), 5, false), "train");
}

TEST(ProgressTest, NeverWiderThanTheTerminal) {
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(progress_bar(state(), width, false).size(), static_cast<size_t>(width));
  }
}

TEST(ProgressTest, ColorsTakeNoColumns) {
  const auto painted = progress_bar(state(), 120, true);
  EXPECT_NE(painted.find("\x1b[32m"), std::string::npos);
  EXPECT_EQ(std::regex_replace(painted, std::regex("\x1b\\[[0-9]+m"), ""), progress_bar(state(), 120, false));
}

TEST(ProgressTest, TheBarIsFullAtTheEnd) {
  auto done = state();
  done.step = done.steps;
  EXPECT_TRUE(test::holds(progress_bar(done, 140, false), "[==============================]"));
}

TEST(ProgressTest, WithoutABudgetOnlyThePeakIsShown) {
  auto plain = state();
  plain.budget_bytes.reset();
  EXPECT_EQ(progress_line(plain), "train 12/50  loss 2.345670  3,120 tokens/s  peak 1.00 GiB, now 512 MiB  2:05 left");
}

TEST(ProgressTest, AFileGetsOneLineForEachStepWithoutEscapes) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file);
    progress.show(state());
    progress.show(state());
  }
  std::rewind(file);
  std::string text(1000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text, progress_line(state()) + "\n" + progress_line(state()) + "\n");
}

}  // namespace
}  // namespace remat::cli

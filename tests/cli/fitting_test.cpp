#include "cli/fitting.h"

#include <gtest/gtest.h>

#include "bench/halving.h"

namespace remat::cli {
namespace {

TEST(FittingTest, FindsWhatRealStepsDoByHalving) {
  FitSettings settings;  // so small that a step takes milliseconds
  settings.model = "mlp";
  settings.width = 64;
  settings.depth = 12;
  settings.batch = 128;
  settings.most = 1024;
  settings.budget = "60%";
  const auto sizes = sizes_along(settings);
  const int64_t budget = ZooSteps::budget_bytes(settings);
  ZooSteps steps(settings, budget);
  const auto halved = [&](FitMode mode) {
    return bench::largest_by_halving(sizes, [&](int64_t size) {
      const FitTrial trial = steps.run(size, mode);
      return trial.fits && trial.peak_bytes <= budget;
    });
  };
  const int64_t plain = halved(FitMode::kPlain), largest = halved(FitMode::kRemat);
  const Fit found =
      fit({.sizes = sizes, .budget_bytes = budget}, [&](int64_t size, FitMode mode) { return steps.run(size, mode); });
  ASSERT_TRUE(found.plain);
  EXPECT_LE(found.plain->size, plain);
  EXPECT_GE(found.plain->size, plain * 7 / 8);
  EXPECT_LE(found.largest.size, largest * 9 / 8);
  EXPECT_GE(found.largest.size, largest * 6 / 8);
}

}  // namespace
}  // namespace remat::cli

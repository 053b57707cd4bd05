// cli/comparison.h -- what two runs of the same training have in common, and what it cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <remat/budget.h>

#include "cli/training.h"

namespace remat::cli {

/// The budget in bytes for a second run. Of a percent budget: plain's baseline plus that share of what its peak adds to
/// it, so that it holds from the first step on. Both are taken from the steps after the first, where the optimizer's
/// state exists. 0 for no limit of its own (the device's).
int64_t budget_bytes(const Budget& budget, const std::vector<StepResult>& plain);

/// The smallest whole percentage whose budget_bytes() are `bytes` at least; nothing where 100 % are too few.
std::optional<double> percentage_of(int64_t bytes, const std::vector<StepResult>& plain);

/// Names the first bit that differs, as in "the gradient of block2.up.weight in step 3"; empty where all are equal:
/// every loss, every gradient, every parameter and buffer after every step.
std::string first_difference(const std::vector<StepResult>& plain, const std::vector<StepResult>& other);

/// The largest peak of all steps.
int64_t peak_bytes(const std::vector<StepResult>& results);
/// The largest number of bytes alive before a step.
int64_t baseline_bytes(const std::vector<StepResult>& results);

/// The operators that were replayed, most expensive first: totals over all steps but the first.
std::vector<ReplayedOperator> replayed_operators(const std::vector<StepResult>& results);

}  // namespace remat::cli

#include "cli/budget_refusal.h"

#include <algorithm>
#include <cstdio>

#include <remat/fit.h>

#include "cli/interrupt.h"
#include "cli/train_model.h"

namespace remat::cli {
namespace {

constexpr int64_t kTriedSteps = 3;  // without a plan, and with one once the optimizer's state is there

/// A signal was noted between two steps.
struct Interrupted {};

}  // namespace

std::string budget_refusal(const BudgetError& error) {
  std::string message = error.what();
  const bool known = error.smallest_known_bytes().has_value();
  const auto advice =
      "give --budget " + std::to_string(error.needed_bytes()) + " (" + format_bytes(error.needed_bytes()) + ") or more";
  if (message.starts_with("[budget] ")) {
    // In a first step the number is a guess.
    return message.substr(0, message.find("; ")) + "; " + advice +
           (known ? "" : " (what comes later in a first step is not known yet)") +
           ", or lower --batch; no budget below " + format_exact_bytes(error.lower_bound_bytes()) + " can work";
  }
  const auto vague = message.find(kLargerBudget);
  if (known && vague != std::string::npos) message.replace(vague, kLargerBudget.size(), advice);
  return message;
}

BudgetError with_smallest_budget(const BudgetError& refusal, const TrainSettings& settings,
                                 const BeginTraining& begin) {
  std::printf("the budget is too small; finding the smallest that is not, by trying\n");
  std::fflush(stdout);
  const auto train = [&](const Budget& budget) {
    const auto step = begin(budget);
    int64_t peak_bytes = 0;
    for (int64_t taken = 0; taken < kTriedSteps; ++taken) {
      if (interrupted() != 0) throw Interrupted();
      const StepResult result = step();
      peak_bytes = std::max(peak_bytes, result.peak_bytes);
      if (result.step >= settings.steps) break;
    }
    return peak_bytes;
  };
  try {
    const int64_t bytes = fit_budget(train);
    return {refusal.what(), refusal.budget_bytes(), refusal.lower_bound_bytes(), bytes};
  } catch (const BudgetError&) {
  } catch (const Interrupted&) {
  }
  return refusal;
}

}  // namespace remat::cli

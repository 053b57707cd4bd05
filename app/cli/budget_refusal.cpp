#include "cli/budget_refusal.h"

#include <algorithm>
#include <cstdio>

#include <remat/fit.h>

#include "cli/interrupt.h"
#include "cli/train_model.h"

namespace remat::cli {
namespace {

using Needed = FirstStepRefusal::Needed;

constexpr int64_t kTriedSteps = 3;  // without a plan, and with one once the optimizer's state is there

/// A signal was noted between two steps.
struct Interrupted {};

std::string needed_text(const BudgetError& error) {
  const auto percent = error.needed_percent();
  const std::string number = percent ? Budget::percent(*percent).to_string() : std::to_string(error.needed_bytes());
  const std::string text = "give --budget " + number + " (" + format_bytes(error.needed_bytes()) + ")";
  const auto* const first = dynamic_cast<const FirstStepRefusal*>(&error);
  if (first == nullptr || first->needed() == Needed::kWorks) return text + " or more";
  if (first->needed() == Needed::kSmallest) return text + ", the smallest that works";
  return text + " or more (a guess: what comes later in the step is not known yet)";
}

}  // namespace

std::string budget_refusal(const BudgetError& error) {
  std::string message = error.what();
  const auto* const first = dynamic_cast<const FirstStepRefusal*>(&error);
  const bool tried = first != nullptr && first->needed() != Needed::kGuessed;
  if (message.starts_with("[budget] ")) {
    message = message.substr(0, message.find("; ")) + "; " + needed_text(error) + ", or lower --batch";
    if (!tried) message += "; no budget below " + format_exact_bytes(error.lower_bound_bytes()) + " can work";
    return message;
  }
  const auto vague = message.find(kLargerBudget);
  if (tried && vague != std::string::npos) message.replace(vague, kLargerBudget.size(), needed_text(error));
  return message;
}

void refuse_with_smallest_budget(const BudgetError& refusal, const TrainSettings& settings, const BeginTraining& begin,
                                 const std::function<std::optional<double>(int64_t bytes)>& percentage_of) {
  if (refusal.needed_percent()) {
    throw FirstStepRefusal(refusal, refusal.needed_bytes(), refusal.needed_percent(), Needed::kWorks);
  }
  std::printf("the budget is too small; finding the smallest that is not, by trying\n");
  std::fflush(stdout);
  int64_t works = 0;  // the smallest yet
  const auto train = [&](const Budget& budget) {
    const auto step = begin(budget);
    int64_t peak_bytes = 0;
    for (int64_t taken = 0; taken < kTriedSteps; ++taken) {
      const auto result = step();
      if (!result) throw Interrupted();
      peak_bytes = std::max(peak_bytes, result->peak_bytes);
      if (result->step >= settings.steps) break;
    }
    if (budget.kind() == Budget::Kind::kBytes && peak_bytes <= budget.byte_count()) works = budget.byte_count();
    return peak_bytes;
  };
  const PoliteStop polite;
  int64_t smallest = 0;
  try {
    smallest = fit_budget(train);
  } catch (const BudgetError&) {  // the machine has too little memory
  } catch (const Interrupted&) {
  }
  const auto needed = smallest > 0 ? Needed::kSmallest : works > 0 ? Needed::kWorks : Needed::kGuessed;
  const int64_t bytes = smallest > 0 ? smallest : works > 0 ? works : refusal.needed_bytes();
  throw FirstStepRefusal(refusal, bytes, percentage_of ? percentage_of(bytes) : std::nullopt, needed);
}

}  // namespace remat::cli

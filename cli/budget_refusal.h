// cli/budget_refusal.h -- a budget error as a user of the command can act on it: its numbers, and options to change.
#pragma once

#include <functional>
#include <string>

#include <remat/budget.h>
#include <remat/error.h>

#include "cli/settings.h"
#include "cli/training.h"

namespace remat::cli {

/// The message of `error`. What the library advises are calls of its own; of a step's refusal only its first clause,
/// what happened, is kept.
std::string budget_refusal(const BudgetError& error);

/// Begins the training that was refused, with another budget; what it returns takes a step of it.
using BeginTraining = std::function<std::function<StepResult()>(const Budget& budget)>;

/// Of steps after so many the session knows what they take.
inline constexpr size_t kFirstSteps = 2;

/// `refusal`, of one of the first steps, with the smallest budget in which up to three steps have run: a few are tried,
/// which standard output says. `refusal` as it is where the machine has too little memory for that, or on a signal.
BudgetError with_smallest_budget(const BudgetError& refusal, const TrainSettings& settings, const BeginTraining& begin);

}  // namespace remat::cli

// cli/budget_refusal.h -- a budget error as a user of the command can act on it: its numbers, and options to change.
#pragma once

#include <string>

#include <remat/error.h>

namespace remat::cli {

/// The message of `error`. What the library advises are calls of its own; of a step's refusal only its first clause,
/// what happened, is kept.
std::string budget_refusal(const BudgetError& error);

}  // namespace remat::cli

#include "cli/budget_refusal.h"

#include <remat/budget.h>

namespace remat::cli {

std::string budget_refusal(const BudgetError& error) {
  const std::string message = error.what();
  if (!message.starts_with("[budget] ")) return message;  // of `remat plan`, or of this command itself
  auto text = message.substr(0, message.find("; "));
  text += "; give a larger --budget, or lower --batch; no budget below " +
          format_exact_bytes(error.lower_bound_bytes()) + " can work";
  if (const auto known = error.smallest_known_bytes()) {
    text += ", and one of " + format_exact_bytes(*known) + " would have";
  }
  return text;
}

}  // namespace remat::cli

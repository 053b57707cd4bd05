#include "cli/budget_refusal.h"

#include <remat/budget.h>

namespace remat::cli {

std::string budget_refusal(const BudgetError& error) {
  std::string message = error.what();
  if (!message.starts_with("[budget] ")) return message;  // of `remat plan`, or of this command itself
  auto text = message.substr(0, message.find("; "));
  // In a first step the number is a guess.
  const std::string later = error.smallest_known_bytes() ? "" : " (what comes later in a first step is not known yet)";
  return text + "; give --budget " + std::to_string(error.needed_bytes()) + " (" + format_bytes(error.needed_bytes()) +
         ") or more" + later + ", or lower --batch; no budget below " + format_exact_bytes(error.lower_bound_bytes()) +
         " can work";
}

}  // namespace remat::cli

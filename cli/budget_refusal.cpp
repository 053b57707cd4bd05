#include "cli/budget_refusal.h"

#include <remat/budget.h>

namespace remat::cli {

std::string budget_refusal(const BudgetError& error) {
  std::string message = error.what();
  if (!message.starts_with("[budget] ")) return message;  // of `remat plan`, or of this command itself
  auto text = message.substr(0, message.find("; "));
  return text + "; give --budget " + std::to_string(error.needed_bytes()) + " (" + format_bytes(error.needed_bytes()) +
         ") or more, or lower --batch; no budget below " + format_exact_bytes(error.lower_bound_bytes()) + " can work";
}

}  // namespace remat::cli

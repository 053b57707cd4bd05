// The smallest budget that a training stays within, by the numbers of its refusals.
#include <remat/error.h>
#include <remat/fit.h>

namespace remat {
namespace {

constexpr int kMostCalls = 10;

}  // namespace

int64_t fit_budget(const TrainWithin& train) {
  auto budget = Budget::percent(1);
  for (int calls = 1;; ++calls) {
    const bool in_bytes = budget.kind() == Budget::Kind::kBytes;
    try {
      const int64_t peak_bytes = train(budget);
      if (in_bytes) return budget.byte_count();
      budget = Budget::bytes(peak_bytes);
    } catch (const BudgetError& error) {
      const bool of_device = in_bytes && error.budget_bytes() < budget.byte_count();
      if (of_device || calls == kMostCalls) throw;
      budget = Budget::bytes(error.needed_bytes());
    }
  }
}

}  // namespace remat

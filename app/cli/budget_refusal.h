// cli/budget_refusal.h -- a budget error as a user of the command can act on it: its numbers, and options to change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <remat/budget.h>
#include <remat/error.h>

#include "cli/settings.h"
#include "cli/training.h"

namespace remat::cli {

/// Of one of the first steps, where the session does not know yet what steps take.
class FirstStepRefusal final : public BudgetError {
 public:
  enum class Needed : uint8_t {
    kGuessed,  ///< it may be too little
    kWorks,    ///< steps have run in it, or steps like those before are predicted to take it
    kSmallest  ///< steps have run in a 16th less, and were refused in little less than that
  };
  /// `refusal` with other numbers.
  FirstStepRefusal(const BudgetError& refusal, int64_t needed_bytes, std::optional<double> needed_percent,
                   Needed needed)
      : BudgetError(refusal.what(), refusal.budget_bytes(), refusal.lower_bound_bytes(), std::nullopt, needed_bytes,
                    needed_percent),
        needed_(needed) {}
  Needed needed() const { return needed_; }

 private:
  Needed needed_;
};

/// The message of `error`. What the library advises are calls of its own; of a step's refusal only its first clause,
/// what happened, is kept.
std::string budget_refusal(const BudgetError& error);

/// Begins the training that was refused, with another budget; what it returns takes a step of it, or gives nothing
/// where a signal asks to stop.
using BeginTraining = std::function<std::function<std::optional<StepResult>()>(const Budget& budget)>;
/// Of a training in this process.
template <class T>
std::function<std::optional<StepResult>()> steps_of(std::unique_ptr<T> training) {
  return [training = std::shared_ptr<T>(std::move(training))]() -> std::optional<StepResult> {
    return training->stop_signal() == 0 ? std::optional(training->step()) : std::nullopt;
  };
}

/// Of steps after so many the session knows what they take.
inline constexpr size_t kFirstSteps = 2;

/// Throws `refusal`, of one of the first steps, as it is where it names a percentage; else with the smallest budget in
/// which up to three steps run, optimizer included. That is found by trying, which standard output says; a signal ends
/// the search. `percentage_of`: of a number of bytes, where the budget was a percentage.
[[noreturn]] void refuse_with_smallest_budget(
    const BudgetError& refusal, const TrainSettings& settings, const BeginTraining& begin,
    const std::function<std::optional<double>(int64_t bytes)>& percentage_of = {});

}  // namespace remat::cli

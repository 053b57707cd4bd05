// remat/error.h -- the exceptions that remat throws.
//
// Every message reads `[where] what happened, with the numbers; what to do`. The library never prints.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace remat {

/// Something the user can mend: a bad argument, an unsupported request, a tensor modified between forward and backward.
/// Parameters, generator state and the session stay usable after it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The step does not fit the budget: nothing is left to drop, or it has replayed so much that it would crawl. Also
/// thrown by planners that find no plan, and by Session::step() where the bytes alive already pass the budget.
///
///     for (auto budget = Budget::bytes(1);;) {  // ends with what the step takes, or a few percent more
///       try {
///         train_one_step(budget);
///         break;
///       } catch (const BudgetError& error) {
///         budget = Budget::bytes(error.needed_bytes());
///       }
///     }
///
/// Thrown from the allocation that would have passed the limit, so it surfaces where an out-of-memory error would: in
/// the forward or the backward pass. The step can be tried again with less work or a larger budget.
class BudgetError : public Error {
 public:
  /// Bytes but for the percentage. Without `needed_bytes`, the two before say what is needed.
  BudgetError(const std::string& message, int64_t budget_bytes, int64_t lower_bound_bytes,
              std::optional<int64_t> smallest_known_bytes, std::optional<int64_t> needed_bytes = std::nullopt,
              std::optional<double> needed_percent = std::nullopt)
      : Error(message),
        budget_bytes_(budget_bytes),
        lower_bound_bytes_(lower_bound_bytes),
        smallest_known_bytes_(smallest_known_bytes),
        needed_bytes_(needed_bytes.value_or(std::max(smallest_known_bytes.value_or(0), lower_bound_bytes))),
        needed_percent_(needed_percent) {}

  /// The budget that was in force, in bytes.
  int64_t budget_bytes() const noexcept { return budget_bytes_; }
  /// The budget to try next: more than budget_bytes(), with all that is alive now counted. Where the session knows the
  /// step from one like it, what the step is predicted to take, from its beginning to its end. Where it does not (in a
  /// first step, or one unlike all before), what the step took so far and the gradients that its parameters still wait
  /// for, and a quarter of that again: what comes later may take more, and then the next error says so. A loop that
  /// sets its budget to the number of each error therefore always comes to an end. Of a planner: the smallest budget
  /// that it has a plan for.
  int64_t needed_bytes() const noexcept { return needed_bytes_; }
  /// The same as a whole percentage, rounded up, where the budget was one; nothing where 100 % are too few.
  std::optional<double> needed_percent() const noexcept { return needed_percent_; }
  /// No budget below it can pass the point where the step stopped, whatever is dropped: at least what was alive when
  /// the step began. It may be below the budget: a step can fail by the choices made before.
  int64_t lower_bound_bytes() const noexcept { return lower_bound_bytes_; }
  /// What the smallest earlier step of this session that completed took, beside what was alive when this one began and
  /// the gradients that were there then and are not now; if there is one.
  std::optional<int64_t> smallest_known_bytes() const noexcept { return smallest_known_bytes_; }

 private:
  int64_t budget_bytes_;
  int64_t lower_bound_bytes_;
  std::optional<int64_t> smallest_known_bytes_;
  int64_t needed_bytes_;
  std::optional<double> needed_percent_;
};

/// A broken invariant inside remat. Not the user's fault: please report it with the message.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace remat

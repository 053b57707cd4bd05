// remat/error.h -- the exceptions that remat throws.
//
// Every message reads `[where] what happened, with the numbers; what to do`. The library never prints.
#pragma once

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

/// The step does not fit the budget, even with everything dropped that can be recomputed.
///
/// Thrown from the allocation that would have passed the limit, so it surfaces where an out-of-memory error would: in
/// the forward or the backward pass. The step can be tried again with less work or a larger budget.
class BudgetError : public Error {
 public:
  /// All arguments in bytes.
  BudgetError(const std::string& message, int64_t budget_bytes, int64_t lower_bound_bytes,
              std::optional<int64_t> smallest_known_bytes)
      : Error(message),
        budget_bytes_(budget_bytes),
        lower_bound_bytes_(lower_bound_bytes),
        smallest_known_bytes_(smallest_known_bytes) {}

  /// The budget that was in force, in bytes.
  int64_t budget_bytes() const noexcept { return budget_bytes_; }
  /// No budget below it can pass the point where the step stopped, whatever is dropped: at least what was alive when
  /// the step began. It may be below the budget: a step can fail by the choices made before.
  int64_t lower_bound_bytes() const noexcept { return lower_bound_bytes_; }
  /// What the smallest earlier step of this session that completed took, beside what was alive when this one began; if
  /// there is one: a budget seen to work.
  std::optional<int64_t> smallest_known_bytes() const noexcept { return smallest_known_bytes_; }

 private:
  int64_t budget_bytes_;
  int64_t lower_bound_bytes_;
  std::optional<int64_t> smallest_known_bytes_;
};

/// A broken invariant inside remat. Not the user's fault: please report it with the message.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace remat

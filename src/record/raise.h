// src/record/raise.h -- how errors leave remat from inside an operator.
//
// From there they pass through PyTorch to whoever called the operator. In C++ that is all there is to it. PyTorch's
// Python bindings turn exceptions that they do not know into RuntimeError: the Python package has its own thrown
// instead. TorchScript's interpreter turns every exception into std::runtime_error, unless it is told not to.
#pragma once

#include <remat/error.h>

namespace remat {

/// Throws something that stands for `error`. What it throws must have an ErrorInFlight.
using ErrorTranslator = void (*)(const std::exception& error);

/// For the rest of the process. Call it before the first step.
void set_error_translator(ErrorTranslator translator);
ErrorTranslator error_translator();

/// A part of every exception that raise() throws. While one lives, TorchScript passes on the exceptions that it meets,
/// those of other threads included, as they are: what it would add is the place in the script. Thread-safe.
class ErrorInFlight {
 public:
  ErrorInFlight() noexcept;
  ErrorInFlight(const ErrorInFlight& /*other*/) noexcept : ErrorInFlight() {}
  ErrorInFlight& operator=(const ErrorInFlight&) = default;
  ~ErrorInFlight();
};

/// An `E` on its way.
template <class E>
class Raised final : public E {
 public:
  explicit Raised(const E& error) : E(error) {}

 private:
  ErrorInFlight in_flight_;
};

template <class E>
[[noreturn]] void raise(const E& error) {
  if (const auto translator = error_translator()) translator(error);
  throw Raised<E>(error);
}

}  // namespace remat

// src/pytorch/raise.h -- how errors leave remat from inside an operator.
//
// From there they pass through PyTorch to whoever called the operator. In C++ that is all there is to it. PyTorch's
// Python bindings turn exceptions that they do not know into RuntimeError: the Python package has its own thrown
// instead. TorchScript's interpreter turns every exception into std::runtime_error, unless it is told not to.
#pragma once

#include <remat/error.h>
#include <remat/extension.h>

namespace remat {

using extension::ErrorInFlight;

/// The one that was set; null: none.
extension::ErrorTranslator error_translator();

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

// src/record/raise.h -- how errors leave remat from inside an operator.
//
// From there they pass through PyTorch to whoever called the operator. In C++ that is all there is to it. PyTorch's
// Python bindings turn exceptions that they do not know into RuntimeError: the Python package has its own thrown
// instead.
#pragma once

#include <remat/error.h>

namespace remat {

/// Throws something that stands for `error`.
using ErrorTranslator = void (*)(const std::exception& error);

/// For the rest of the process. Call it before the first step.
void set_error_translator(ErrorTranslator translator);
ErrorTranslator error_translator();

template <class E>
[[noreturn]] void raise(const E& error) {
  if (const auto translator = error_translator()) translator(error);
  throw error;
}

}  // namespace remat

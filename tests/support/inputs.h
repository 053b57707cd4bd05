// tests/support/inputs.h -- arguments of an operator, as an observer is shown them.
#pragma once

#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace remat::test {

/// Valid while `values` is.
inline c10::ArrayRef<const c10::IValue> inputs_of(const std::vector<c10::IValue>& values) {
  return c10::ArrayRef<const c10::IValue>(values.data(), values.size());
}

}  // namespace remat::test

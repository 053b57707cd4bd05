// tests/support/kernels.h -- operators that a test registers: how it calls them, and a kernel for them.
#pragma once

#include <string>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace remat::test {

/// Calls the operator `name`, its library included, as a user would: through the dispatcher.
template <class... Tensors>
at::Tensor call(const std::string& name, const Tensors&... tensors) {
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  return handle.template typed<at::Tensor(const Tensors&...)>().call(tensors...);
}

/// A kernel that calls no operator: those would be recorded by themselves. For floats.
inline at::Tensor times(const at::Tensor& x, float factor) {
  auto y = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.const_data_ptr<float>()[i] * factor;
  return y;
}

}  // namespace remat::test

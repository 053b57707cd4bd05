// src/session/gradient_hook.h -- calls a function when a parameter's gradient is complete.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace remat {

/// A parameter can have one such hook. Throws Error, which begins with `where`, if it has one.
void watch_gradient(const at::Tensor& parameter, const char* where, std::function<void(const at::Tensor&)> is_complete);
void unwatch_gradient(const at::Tensor& parameter);

}  // namespace remat

// src/session/gradient_hook.h -- calls a function when a parameter's gradient is complete.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat {

/// Hooks on parameters, until remove() or the end of this.
class GradientHooks {
 public:
  using IsComplete = std::function<void(const at::Tensor& parameter)>;

  GradientHooks() = default;
  ~GradientHooks() { remove(); }
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// A parameter can have one such hook. Throws Error, which begins with `where`, if it has one, of this or of others.
  void add(const at::Tensor& parameter, const char* where, IsComplete is_complete);
  void remove();

 private:
  std::vector<at::Tensor> watched_;
};

}  // namespace remat

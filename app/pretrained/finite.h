// pretrained/finite.h -- weights that are no numbers, which no loss comes of.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace remat::pretrained {

/// Collects the parameters that have NaN or infinite elements, by name. Not thread-safe.
class FiniteCheck {
 public:
  /// Looks at every element of a strided tensor on the CPU. Minus infinity is let through in biases: that of a head may
  /// hold classes or tokens off.
  void look_at(const std::string& name, const at::Tensor& parameter);

  bool all_finite() const { return count_ == 0; }
  /// "'wte.weight' (2 of 64 elements), 'ln.bias' (all 8 elements)": the first three.
  std::string found() const { return found_ + (count_ > kMostNamed ? ", ..." : ""); }

 private:
  static constexpr int64_t kMostNamed = 3;
  int64_t count_ = 0;
  std::string found_;
};

}  // namespace remat::pretrained

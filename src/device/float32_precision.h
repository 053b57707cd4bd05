// src/device/float32_precision.h -- PyTorch's settings of the precision in which float32 products are computed.
#pragma once

#include <array>
#include <optional>

#include <ATen/Context.h>

namespace remat::device {

/// Of convolutions, recurrent layers and matrix products.
using Float32Precisions = std::array<at::Float32Precision, 3>;

/// Those in force for `backend`. IEEE where nothing is set anywhere and kernels compute so.
Float32Precisions float32_precisions(at::Float32Backend backend);

/// While it lives, `then` are in force for `backend`. Afterwards all are as they were, also where they take their value
/// from a setting above them (torch.backends.fp32_precision). The settings belong to the whole process.
class Float32PrecisionScope {
 public:
  Float32PrecisionScope(at::Float32Backend backend, const Float32Precisions& then);
  ~Float32PrecisionScope();
  Float32PrecisionScope(const Float32PrecisionScope&) = delete;
  Float32PrecisionScope& operator=(const Float32PrecisionScope&) = delete;

 private:
  const at::Float32Backend backend_;
  std::array<std::optional<at::Float32Precision>, 3> own_;  ///< before, of those that were changed
  std::optional<at::Float32Precision> own_above_;           ///< the same of the backend's as a whole
  /// Of torch.set_float32_matmul_precision(), where that agreed with the other settings: kernels of CUDA look whether
  /// it does.
  std::optional<at::Float32MatmulPrecision> legacy_;
};

}  // namespace remat::device

// src/record/kernel_settings.h -- the switches of PyTorch by which kernels choose how to compute. An operator that runs
// again under others may give other bits: the number of threads decides the order of a sum, oneDNN's switch who
// multiplies.
#pragma once

#include <array>

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>

#include "record/autocast_state.h"

namespace remat {

struct KernelSettings {
  int threads = 0;
  bool mkldnn = true, mkldnn_deterministic = false, nnpack = true, fp16_reduction = false;
  bool deterministic = false, warn_only = false, fill_uninitialized = false;
  bool flush_denormal = false;
  int rounding = 0;  ///< of floating-point results on this thread, as fegetround() says
  c10::ScalarType default_type = c10::ScalarType::Float;  ///< of what factories make
  /// oneDNN's for convolutions, recurrent layers and products; read only where `products` is asked for.
  std::array<at::Float32Precision, 3> precision = {};
  AutocastState autocast;  ///< of operators that are not PyTorch's; an AutocastScope puts it in force

  bool operator==(const KernelSettings&) const = default;

  /// Those in force. `products`: with `precision`, which takes longer to look up.
  static KernelSettings current(bool products);
  /// Puts these in force. Those that are in force already are not touched: most belong to the whole process.
  void apply() const;
};

/// While it lives, kernels run under `settings`.
class KernelSettingsScope {
 public:
  explicit KernelSettingsScope(const KernelSettings& settings)
      : before_(KernelSettings::current(true)), differs_(before_ != settings) {
    if (differs_) settings.apply();
  }
  ~KernelSettingsScope() {
    if (differs_) before_.apply();
  }
  KernelSettingsScope(const KernelSettingsScope&) = delete;
  KernelSettingsScope& operator=(const KernelSettingsScope&) = delete;

 private:
  KernelSettings before_;
  bool differs_;
};

}  // namespace remat

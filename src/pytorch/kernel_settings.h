// src/pytorch/kernel_settings.h -- the settings of PyTorch by which kernels choose how to compute. An operator that
// runs again under others may give other bits: the number of threads decides the order of a sum, oneDNN's switch who
// multiplies.
#pragma once

#include <array>
#include <optional>

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>

#include "device/float32_precision.h"
#include "device/kernel_switches.h"
#include "pytorch/autocast_state.h"
#include "pytorch/floating_point_mode.h"
#include "pytorch/kernel_threads.h"

namespace remat {

/// Which of the settings that belong to the whole process an operator may read.
struct SettingsRead {
  bool switches = true;
  bool products = true;      ///< the precision of products, too
  bool attention = true;     ///< the kernels of attention that may be chosen
  bool default_type = true;  ///< the type of what factories make, and of quotients of integers
};

struct KernelSettings {
  /// Kernels that scaled_dot_product_attention() may choose.
  struct Attention {
    bool flash = true, memory_efficient = true, math = true, cudnn = true;

    bool operator==(const Attention&) const = default;
  };
  /// Of the whole process: other threads see them too.
  struct Switches {
    bool mkldnn = true, mkldnn_deterministic = false, nnpack = true, fp16_reduction = false;
    bool deterministic = false, warn_only = false, fill_uninitialized = false;
    /// oneDNN's for convolutions, recurrent layers and products; read only where `products` is asked for. It may be
    /// that of a setting above it (torch.backends.mkldnn.fp32_precision, torch.backends.fp32_precision).
    device::Float32Precisions precision = {};
    Attention attention;  ///< of operators that are not PyTorch's: PyTorch's own calls of its kernels are recorded

    bool operator==(const Switches&) const = default;
  };
  Switches switches;
  c10::ScalarType default_type = c10::ScalarType::Float;

  std::optional<device::KernelSwitches> accelerator;  ///< of steps on devices that have streams

  // Of one thread.
  ThreadCounts threads;
  FloatingPointMode mode;
  AutocastState autocast;  ///< of operators that are not PyTorch's; an AutocastScope puts it in force

  bool operator==(const KernelSettings&) const = default;

  /// Those in force, without `accelerator`. `products`: with `precision`, which takes longer to look up.
  static KernelSettings current(bool products);
};

/// While it lives, kernels on this thread run under `settings`. Those that belong to the whole process are changed only
/// where they are `read`, and differ. Afterwards all are as they were: what a setting took from one above it, it does
/// again.
class KernelSettingsScope {
 public:
  KernelSettingsScope(const KernelSettings& settings, SettingsRead read);
  ~KernelSettingsScope();
  KernelSettingsScope(const KernelSettingsScope&) = delete;
  KernelSettingsScope& operator=(const KernelSettingsScope&) = delete;

 private:
  KernelSettings before_, within_;
  std::optional<ThreadCountsScope> threads_;
  std::optional<device::KernelSwitchesScope> accelerator_;
  std::optional<device::Float32PrecisionScope> precision_;
};

}  // namespace remat

// src/device/kernel_switches.h -- PyTorch's switches by which kernels of accelerators choose how to compute.
#pragma once

#include <optional>

#include <ATen/Context.h>

#include "device/float32_precision.h"

namespace remat::device {

/// Of the whole process: all threads see them.
struct KernelSwitches {
  // torch.backends.cudnn
  bool cudnn = true, cudnn_benchmark = false, cudnn_deterministic = false;
  int cudnn_benchmark_limit = 0;
  // torch.backends.cuda
  at::CuBLASReductionOption fp16_reduction = {}, bf16_reduction = {};
  bool fp16_accumulation = false;
  at::BlasBackend blas = {};
  at::LinalgBackend linalg = {};
  /// Of float32, as it is in force.
  Float32Precisions precision = {};

  bool operator==(const KernelSwitches&) const = default;
  /// Those in force.
  static KernelSwitches current();
};

/// While it lives, `then` are in force. Afterwards all are as they were.
class KernelSwitchesScope {
 public:
  explicit KernelSwitchesScope(const KernelSwitches& then);
  ~KernelSwitchesScope();
  KernelSwitchesScope(const KernelSwitchesScope&) = delete;
  KernelSwitchesScope& operator=(const KernelSwitchesScope&) = delete;

 private:
  const KernelSwitches before_, within_;
  std::optional<Float32PrecisionScope> precision_;
};

}  // namespace remat::device

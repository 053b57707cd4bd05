#include "device/kernel_switches.h"

namespace remat::device {
namespace {

using Option = at::CuBLASReductionOption;

/// Changes what differs, but for the precision.
void change(const KernelSwitches& from, const KernelSwitches& to) {
  at::Context& context = at::globalContext();
  const auto reduced = [](Option option) { return option == Option::AllowReducedPrecisionWithSplitK; };
  const auto split = [](Option option) { return option != Option::DisallowReducedPrecisionDisallowSplitK; };
  if (from.cudnn != to.cudnn) context.setUserEnabledCuDNN(to.cudnn);
  if (from.cudnn_benchmark != to.cudnn_benchmark) context.setBenchmarkCuDNN(to.cudnn_benchmark);
  if (from.cudnn_deterministic != to.cudnn_deterministic) context.setDeterministicCuDNN(to.cudnn_deterministic);
  if (from.cudnn_benchmark_limit != to.cudnn_benchmark_limit) {
    context.setBenchmarkLimitCuDNN(to.cudnn_benchmark_limit);
  }
  if (from.fp16_reduction != to.fp16_reduction) {
    context.setAllowFP16ReductionCuBLAS(reduced(to.fp16_reduction), split(to.fp16_reduction));
  }
  if (from.bf16_reduction != to.bf16_reduction) {
    context.setAllowBF16ReductionCuBLAS(reduced(to.bf16_reduction), split(to.bf16_reduction));
  }
  if (from.fp16_accumulation != to.fp16_accumulation) context.setAllowFP16AccumulationCuBLAS(to.fp16_accumulation);
  if (from.blas != to.blas) context.setBlasPreferredBackend(to.blas);
  if (from.linalg != to.linalg) context.setLinalgPreferredBackend(to.linalg);
}

}  // namespace

KernelSwitches KernelSwitches::current() {
  at::Context& context = at::globalContext();
  return {.cudnn = context.userEnabledCuDNN(),
          .cudnn_benchmark = context.benchmarkCuDNN(),
          .cudnn_deterministic = context.deterministicCuDNN(),
          .cudnn_benchmark_limit = context.benchmarkLimitCuDNN(),
          .fp16_reduction = context.allowFP16ReductionCuBLAS(),
          .bf16_reduction = context.allowBF16ReductionCuBLAS(),
          .fp16_accumulation = context.allowFP16AccumulationCuBLAS(),
          .blas = context.blasPreferredBackend(),
          .linalg = context.linalgPreferredBackend(),
          .precision = float32_precisions(at::Float32Backend::CUDA)};
}

KernelSwitchesScope::KernelSwitchesScope(const KernelSwitches& then)
    : before_(KernelSwitches::current()), within_(then) {
  if (before_ == within_) return;
  change(before_, within_);
  if (before_.precision != within_.precision) precision_.emplace(at::Float32Backend::CUDA, within_.precision);
}

KernelSwitchesScope::~KernelSwitchesScope() {
  if (!(before_ == within_)) change(within_, before_);
}

}  // namespace remat::device

#include "record/kernel_settings.h"

#include <cfenv>

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace remat {
namespace {

constexpr std::array<at::Float32Op, 3> kProducts = {at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL};

/// PyTorch has no question for it. Of this thread.
bool flushes_denormal() {
#if defined(__SSE__)
  constexpr unsigned kFlushToZero = 0x8000;
  return (_mm_getcsr() & kFlushToZero) != 0;
#else
  return false;
#endif
}

}  // namespace

KernelSettings KernelSettings::current(bool products) {
  const at::Context& context = at::globalContext();
  KernelSettings now;
  now.threads = at::get_num_threads();
  now.mkldnn = context.userEnabledMkldnn();
  now.mkldnn_deterministic = context.deterministicMkldnn();
  now.nnpack = context.userEnabledNNPACK();
  now.fp16_reduction = context.allowFP16ReductionCPU();
  now.deterministic = context.deterministicAlgorithms();
  now.warn_only = context.deterministicAlgorithmsWarnOnly();
  now.fill_uninitialized = context.deterministicFillUninitializedMemory();
  now.flush_denormal = flushes_denormal();
  now.rounding = std::fegetround();
  now.default_type = c10::typeMetaToScalarType(c10::get_default_dtype());
  if (products) {
    for (size_t i = 0; i < kProducts.size(); ++i) {
      now.precision[i] = context.float32Precision(at::Float32Backend::MKLDNN, kProducts[i]);
    }
  }
  return now;
}

void KernelSettings::apply() const {
  at::Context& context = at::globalContext();
  const KernelSettings now = current(true);
  if (threads != now.threads) at::set_num_threads(threads);
  if (mkldnn != now.mkldnn) context.setUserEnabledMkldnn(mkldnn);
  if (mkldnn_deterministic != now.mkldnn_deterministic) context.setDeterministicMkldnn(mkldnn_deterministic);
  if (nnpack != now.nnpack) context.setUserEnabledNNPACK(nnpack);
  if (fp16_reduction != now.fp16_reduction) context.setAllowFP16ReductionCPU(fp16_reduction);
  if (deterministic != now.deterministic || warn_only != now.warn_only) {
    context.setDeterministicAlgorithms(deterministic, warn_only);
  }
  if (fill_uninitialized != now.fill_uninitialized) {
    context.setDeterministicFillUninitializedMemory(fill_uninitialized);
  }
  if (flush_denormal != now.flush_denormal) at::Context::setFlushDenormal(flush_denormal);
  if (rounding != now.rounding) std::fesetround(rounding);
  if (default_type != now.default_type) c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_type));
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if (precision[i] == now.precision[i]) continue;
    context.setFloat32Precision(at::Float32Backend::MKLDNN, kProducts[i], precision[i]);
  }
}

}  // namespace remat

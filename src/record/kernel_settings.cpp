#include "record/kernel_settings.h"

#include <cfenv>

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <dlfcn.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace remat {
namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

constexpr std::array<Float32Op, 3> kProducts = {Float32Op::CONV, Float32Op::RNN, Float32Op::MATMUL};

/// PyTorch has no question for it. Of this thread.
bool flushes_denormal() {
#if defined(__SSE__)
  constexpr unsigned kFlushToZero = 0x8000;
  return (_mm_getcsr() & kFlushToZero) != 0;
#else
  return false;
#endif
}

/// What is set for `op` of oneDNN itself: NONE where it takes the precision that is set above it. PyTorch tells only
/// which precision is in force, so where both are the same, the one above is another for a moment.
Float32Precision own_precision(Float32Op op) {
  at::Context& context = at::globalContext();
  const Float32Backend above = op == Float32Op::ALL ? Float32Backend::GENERIC : Float32Backend::MKLDNN;
  const Float32Precision in_force = context.float32Precision(Float32Backend::MKLDNN, op);
  if (in_force != context.float32Precision(above, Float32Op::ALL)) return in_force;
  const Float32Precision own_above =
      op == Float32Op::ALL ? context.float32Precision(above, Float32Op::ALL) : own_precision(Float32Op::ALL);
  const Float32Precision other = in_force == Float32Precision::IEEE ? Float32Precision::BF16 : Float32Precision::IEEE;
  context.setFloat32Precision(above, Float32Op::ALL, other);
  const bool follows = context.float32Precision(Float32Backend::MKLDNN, op) == other;
  context.setFloat32Precision(above, Float32Op::ALL, own_above);
  return follows ? Float32Precision::NONE : in_force;
}

/// Of this thread alone: at::set_num_threads() also sets what threads get that begin later.
void set_threads(int threads) {
  using Set = void (*)(int);
  struct Libraries {
    Set openmp = nullptr, mkl = nullptr;
    Libraries() {
      Dl_info torch;
      if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch) == 0) return;
      void* const library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
      if (library == nullptr) return;
      openmp = reinterpret_cast<Set>(dlsym(library, "omp_set_num_threads"));
      mkl = reinterpret_cast<Set>(dlsym(library, "MKL_Set_Num_Threads_Local"));
    }
  };
  static const Libraries libraries;
  if (libraries.openmp != nullptr) {
    libraries.openmp(threads);
    if (libraries.mkl != nullptr) libraries.mkl(threads);
  }
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

/// Changes what differs, but for precisions.
void change(const KernelSettings& from, const KernelSettings& to) {
  at::Context& context = at::globalContext();
  const KernelSettings::Switches& before = from.switches;
  const KernelSettings::Switches& after = to.switches;
  if (before.mkldnn != after.mkldnn) context.setUserEnabledMkldnn(after.mkldnn);
  if (before.mkldnn_deterministic != after.mkldnn_deterministic) {
    context.setDeterministicMkldnn(after.mkldnn_deterministic);
  }
  if (before.nnpack != after.nnpack) context.setUserEnabledNNPACK(after.nnpack);
  if (before.fp16_reduction != after.fp16_reduction) context.setAllowFP16ReductionCPU(after.fp16_reduction);
  if (before.deterministic != after.deterministic || before.warn_only != after.warn_only) {
    context.setDeterministicAlgorithms(after.deterministic, after.warn_only);
  }
  if (before.fill_uninitialized != after.fill_uninitialized) {
    context.setDeterministicFillUninitializedMemory(after.fill_uninitialized);
  }
  if (from.default_type != to.default_type) c10::set_default_dtype(c10::scalarTypeToTypeMeta(to.default_type));
  if (from.threads != to.threads) set_threads(to.threads);
  if (from.flush_denormal != to.flush_denormal) at::Context::setFlushDenormal(to.flush_denormal);
  if (from.rounding != to.rounding) std::fesetround(to.rounding);
}

}  // namespace

KernelSettings KernelSettings::current(bool products) {
  const at::Context& context = at::globalContext();
  KernelSettings now;
  now.switches.mkldnn = context.userEnabledMkldnn();
  now.switches.mkldnn_deterministic = context.deterministicMkldnn();
  now.switches.nnpack = context.userEnabledNNPACK();
  now.switches.fp16_reduction = context.allowFP16ReductionCPU();
  now.switches.deterministic = context.deterministicAlgorithms();
  now.switches.warn_only = context.deterministicAlgorithmsWarnOnly();
  now.switches.fill_uninitialized = context.deterministicFillUninitializedMemory();
  if (products) {
    for (size_t i = 0; i < kProducts.size(); ++i) {
      now.switches.precision[i] = context.float32Precision(Float32Backend::MKLDNN, kProducts[i]);
    }
  }
  now.default_type = c10::typeMetaToScalarType(c10::get_default_dtype());
  now.threads = at::get_num_threads();
  now.flush_denormal = flushes_denormal();
  now.rounding = std::fegetround();
  return now;
}

KernelSettingsScope::KernelSettingsScope(const KernelSettings& settings, SettingsRead read)
    : before_(KernelSettings::current(read.products)), within_(settings) {
  if (!read.switches) within_.switches = before_.switches;
  if (!read.products) within_.switches.precision = before_.switches.precision;
  if (!read.default_type) within_.default_type = before_.default_type;
  within_.autocast = before_.autocast;
  if (before_ == within_) return;
  change(before_, within_);
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if (within_.switches.precision[i] == before_.switches.precision[i]) continue;
    own_precision_[i] = own_precision(kProducts[i]);
    // Where none was set anywhere, kernels computed as under IEEE. To set none would be to take another's.
    const Float32Precision within = within_.switches.precision[i];
    at::globalContext().setFloat32Precision(Float32Backend::MKLDNN, kProducts[i],
                                            within == Float32Precision::NONE ? Float32Precision::IEEE : within);
  }
}

KernelSettingsScope::~KernelSettingsScope() {
  if (before_ == within_) return;
  change(within_, before_);
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if (!own_precision_[i]) continue;
    at::globalContext().setFloat32Precision(Float32Backend::MKLDNN, kProducts[i], *own_precision_[i]);
  }
}

}  // namespace remat

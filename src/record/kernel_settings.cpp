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

/// Functions of the libraries that PyTorch runs threads with; null where it has others.
struct ThreadLibraries {
  void (*set_openmp)(int) = nullptr;
  void (*set_mkl)(int) = nullptr;
  void (*run_on_threads)(void (*)(void*), void*, unsigned, unsigned) = nullptr;

  ThreadLibraries() {
    Dl_info torch;
    if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch) == 0) return;
    void* const library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    const auto find = [&]<class Function>(Function*& function, const char* name) {
      function = reinterpret_cast<Function*>(dlsym(library, name));
    };
    find(set_openmp, "omp_set_num_threads");
    find(set_mkl, "MKL_Set_Num_Threads_Local");
    find(run_on_threads, "GOMP_parallel");
  }
};

const ThreadLibraries& thread_libraries() {
  static const ThreadLibraries libraries;
  return libraries;
}

/// Of this thread alone: at::set_num_threads() also sets what threads get that begin later.
void set_threads(int threads) {
  const ThreadLibraries& libraries = thread_libraries();
  if (libraries.set_openmp != nullptr) {
    libraries.set_openmp(threads);
    if (libraries.set_mkl != nullptr) libraries.set_mkl(threads);
  }
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

/// Threads of OpenMP's pool take over how their maker rounds and treats denormals when they are made, and keep it. Here
/// those that a replay will use are made, before it changes that on this thread.
void make_threads(int threads) {
  const auto run = thread_libraries().run_on_threads;
  if (run == nullptr || threads < 2 || at::in_parallel_region()) return;
  run([](void* /*data*/) {}, nullptr, static_cast<unsigned>(threads), 0);
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
  if (before_.flush_denormal != within_.flush_denormal || before_.rounding != within_.rounding) {
    make_threads(within_.threads);
  }
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

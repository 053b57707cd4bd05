#include "record/kernel_settings.h"

#include <c10/core/DefaultDtype.h>

namespace remat {
namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

constexpr std::array<Float32Op, 3> kProducts = {Float32Op::CONV, Float32Op::RNN, Float32Op::MATMUL};

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

KernelSettings::Attention attention_of(const at::Context& context) {
  return {.flash = context.userEnabledFlashSDP(),
          .memory_efficient = context.userEnabledMemEfficientSDP(),
          .math = context.userEnabledMathSDP(),
          .cudnn = context.userEnabledCuDNNSDP()};
}

void set_attention(const KernelSettings::Attention& attention) {
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(attention.flash);
  context.setSDPUseMemEfficient(attention.memory_efficient);
  context.setSDPUseMath(attention.math);
  context.setSDPUseCuDNN(attention.cudnn);
}

/// Changes what differs, but for precisions and threads.
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
  if (before.attention != after.attention) set_attention(after.attention);
  if (from.mode != to.mode) to.mode.set();
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
  now.switches.attention = attention_of(context);
  now.threads = ThreadCounts::current(products);
  now.mode = FloatingPointMode::current();
  return now;
}

KernelSettingsScope::KernelSettingsScope(const KernelSettings& settings, SettingsRead read)
    : before_(KernelSettings::current(read.products)), within_(settings) {
  if (!read.switches) within_.switches = before_.switches;
  if (!read.attention) within_.switches.attention = before_.switches.attention;
  if (!read.products) within_.switches.precision = before_.switches.precision;
  if (!read.default_type) within_.default_type = before_.default_type;
  if (!read.products) within_.threads.products = 0;
  within_.autocast = before_.autocast;
  if (before_ == within_) return;
  if (before_.threads != within_.threads) threads_.emplace(before_.threads, within_.threads);
  if (before_.mode != within_.mode) make_threads(within_.threads.kernels);
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
  threads_.reset();
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if (!own_precision_[i]) continue;
    at::globalContext().setFloat32Precision(Float32Backend::MKLDNN, kProducts[i], *own_precision_[i]);
  }
}

}  // namespace remat

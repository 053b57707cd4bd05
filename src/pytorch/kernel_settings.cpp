#include "pytorch/kernel_settings.h"

#include <c10/core/DefaultDtype.h>

namespace remat {
namespace {

using at::Float32Backend;

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
  if (products) now.switches.precision = device::float32_precisions(Float32Backend::MKLDNN);
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
  within_.accelerator.reset();
  if (read.switches && settings.accelerator) accelerator_.emplace(*settings.accelerator);
  if (before_ == within_) return;
  if (before_.threads != within_.threads) threads_.emplace(before_.threads, within_.threads);
  if (before_.mode != within_.mode) make_threads(within_.threads.kernels);
  change(before_, within_);
  if (within_.switches.precision != before_.switches.precision) {
    precision_.emplace(Float32Backend::MKLDNN, within_.switches.precision);
  }
}

KernelSettingsScope::~KernelSettingsScope() {
  if (before_ == within_) return;
  change(within_, before_);
  threads_.reset();
}

}  // namespace remat

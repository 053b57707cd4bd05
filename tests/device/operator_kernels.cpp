// Which operators of PyTorch have which kernel on the simulated device.
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include "device/computing_kernels.h"
#include "device/registration.h"

namespace remat::simulated {
namespace {

/// Attention by its parts: the CPU's fused kernels are asked for by devices' names.
int64_t choose_attention(const at::Tensor& /*query*/, const at::Tensor& /*key*/, const at::Tensor& /*value*/,
                         const std::optional<at::Tensor>& /*mask*/, double /*dropout*/, bool /*causal*/,
                         std::optional<double> /*scale*/, bool /*grouped*/) {
  return 0;
}

/// The CPU's, but that the mask is drawn on the device: this operator takes no generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(true)) return {input.clone(), at::ones_like(input, at::kBool)};
  at::Tensor mask = at::empty_like(input, at::kBool);
  mask.bernoulli_(1 - p);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  return {input.mul(mask).mul_(scale), mask};
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

bool computes(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  if (name == "aten::convolution" || name == "aten::convolution_backward") return op.schema().overload_name().empty();
  return name.starts_with("aten::") && op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && !is_view(op.schema());
}

torch::Library& aten() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *library;
}

}  // namespace

void register_random_kernels() {
  aten().impl("native_dropout", &native_dropout);
  aten().impl("_fused_sdp_choice", &choose_attention);
}

void register_computing_kernels() {
  // Those that the CPU has a kernel for, even where PyTorch would compose them of others: results have the CPU's bits.
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema() || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || !computes(*op))
      continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    aten().impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&compute>());
  }
  static auto* const others =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

}  // namespace remat::simulated

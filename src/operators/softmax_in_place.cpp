// The backward pass of softmax and log_softmax in the memory of the gradient.
//
// Plain has three tensors of the logits' size there: the saved result, its gradient and that of the input. With a large
// vocabulary this is often the peak of the whole step, and nothing that may be dropped is among them. The kernels give
// the same bits where the result is written over the gradient (tests/operators/softmax_in_place_test.cpp): they read
// all that they need of a row of the gradient before they write to it, element by element. Without this file the result
// has memory of its own, as in plain.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <sstream>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "device/dispatch_keys.h"
#include "memory/silent_warnings.h"
#include "operators/operator_info.h"
#include "operators/special_operator.h"

namespace remat {
namespace {

constexpr const char* kLogSoftmax = "aten::_log_softmax_backward_data";
constexpr const char* kSoftmax = "aten::_softmax_backward_data";
/// Nodes of autograd's graph that only call the operator. A user's function that does may go on to use the gradient.
constexpr std::array<std::string_view, 2> kNodes = {"LogSoftmaxBackward0", "SoftmaxBackward0"};

bool may_reuse(c10::ArrayRef<const c10::IValue> inputs, std::string_view node) {
  const at::Tensor& gradient = inputs[0].toTensor();
  const auto input_type = inputs[3].toScalarType();
  if (gradient.scalar_type() != input_type) return false;
  // Plain's result has these, and kernels that read it may look at the strides of dimensions of size 1, too.
  if (gradient.strides() != c10::contiguous_strides(gradient.sizes())) return false;
  return std::ranges::find(kNodes, node) != kNodes.end();
}

void describe(OperatorInfo& info) {
  if (info.base_view() == kLogSoftmax || info.base_view() == kSoftmax) info.reuses_gradient = may_reuse;
}

using Kernel = at::Tensor (*)(const at::Tensor&, const at::Tensor&, int64_t, at::ScalarType);
using KernelOut = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, at::ScalarType);

std::atomic<const Engine*> g_engine{nullptr};

template <Kernel kernel, KernelOut kernel_out>
at::Tensor in_place(const at::Tensor& gradient, const at::Tensor& output, int64_t dim, at::ScalarType input_type) {
  if (!g_engine.load(std::memory_order_relaxed)->may_write_over(gradient)) {
    return kernel(gradient, output, dim, input_type);
  }
  at::Tensor result = gradient;
  kernel_out(result, gradient, output, dim, input_type);
  return result;
}

/// The dispatcher tells in text alone where a kernel comes from.
bool has_pytorchs_kernel(const char* name) {
  const auto handle = c10::Dispatcher::singleton().findOp({name, ""});
  if (!handle) return false;
  std::istringstream lines(handle->dumpState());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("CPU: ")) return line.find("RegisterCPU") != std::string::npos;
  }
  return false;
}

template <Kernel kernel, KernelOut kernel_out>
void replace(torch::Library& library, const char* name) {
  if (has_pytorchs_kernel(name)) library.impl(name, in_place<kernel, kernel_out>);
}

/// From now on these operators write their result over the gradient on the CPU, where the engine allows it. Otherwise
/// they are PyTorch's own. Leaves an operator alone whose kernel is not PyTorch's.
std::shared_ptr<const void> install(const Installation& installation) {
  static std::once_flag once;
  std::call_once(once, [&] {
    g_engine = &installation.engine;
    const SilentWarnings silent;  // PyTorch warns of kernels that are replaced
    // Never destroyed: operators may run until the process ends.
    auto* const library =
        new torch::Library(torch::Library::IMPL, "aten", device::kHostKeys.kernels, __FILE__, __LINE__);
    replace<at::cpu::_log_softmax_backward_data, at::cpu::_log_softmax_backward_data_out>(*library, kLogSoftmax);
    replace<at::cpu::_softmax_backward_data, at::cpu::_softmax_backward_data_out>(*library, kSoftmax);
  });
  return nullptr;
}

}  // namespace

const SpecialOperator special::kSoftmaxInPlace = {.name = "softmax_in_place", .describe = describe, .install = install};

}  // namespace remat

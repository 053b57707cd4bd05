// The Python module remat_simulated_cuda_kernels: install() gives operators kernels that compute on the simulated
// device.
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/NativeFunctions.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>
#include <torch/library.h>

#include "device/call_values.h"
#include "device/registration.h"
#include "kernels/call.h"

namespace remat::simulated_cuda {
namespace {

using torch::jit::Stack;

/// These make or describe tensors and launch nothing.
constexpr std::array<std::string_view, 21> kKept = {"aten::empty.memory_format",
                                                    "aten::empty_strided",
                                                    "aten::as_strided",
                                                    "aten::view",
                                                    "aten::_reshape_alias",
                                                    "aten::resize_",
                                                    "aten::set_.source_Storage",
                                                    "aten::set_.source_Storage_storage_offset",
                                                    "aten::set_.source_Tensor",
                                                    "aten::set_",
                                                    "aten::record_stream",
                                                    "aten::_efficientzerotensor",
                                                    "aten::is_set_to",
                                                    "aten::_pin_memory",
                                                    "aten::is_pinned",
                                                    "aten::view.dtype",
                                                    "aten::view_as_real",
                                                    "aten::view_as_complex",
                                                    "aten::unfold",
                                                    "aten::_copy_from",
                                                    "aten::_to_cpu"};
/// Their kernels serve every device, or ask cuDNN.
constexpr std::array<std::string_view, 3> kReplaced = {"aten::copy_", "aten::convolution",
                                                       "aten::convolution_overrideable"};

template <size_t Count>
bool is_one_of(const std::array<std::string_view, Count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  std::optional<c10::Device> named;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) named = argument.toDevice();
    simulated::with_tensors(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && !found) found = tensor.device();
      return tensor;
    });
  }
  if (found) return *found;
  return named && named->has_index() ? *named : c10::Device(c10::kCUDA, c10::cuda::current_device());
}

void replace_arguments(const c10::OperatorHandle& op, Stack* stack, Stack results) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

void compute(const c10::OperatorHandle& op, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const Call call{op, arguments, device_of(arguments)};
  const c10::cuda::CUDAGuard guard(call.device);
  Stack results;
  if (!launch(call, results)) results = wait_and_compute(call);
  replace_arguments(op, stack, std::move(results));
}

/// Between the host and the device copies of whole tensors are PyTorch's own, by the runtime.
void copy(const c10::OperatorHandle& op, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3);
  at::Tensor self = arguments[0].toTensor();
  const at::Tensor source = arguments[1].toTensor();
  const bool non_blocking = arguments[2].toBool();
  const bool is_plain = self.is_cuda() != source.is_cuda() && self.is_contiguous() && source.is_contiguous() &&
                        self.sizes() == source.sizes() && self.dtype() == source.dtype();
  if (is_plain) {
    at::native::copy_(self, source, non_blocking);
    return replace_arguments(op, stack, {self});
  }
  if (self.is_cuda() && source.is_cuda() && self.device() != source.device()) {
    // As PyTorch's copies between devices wait for the streams of both.
    for (const at::Tensor& tensor : {self, source}) {
      c10::cuda::getCurrentCUDAStream(tensor.device().index()).synchronize();
    }
  }
  compute(op, stack);
}

/// Attention of its parts: the fused kernels are CUDA's alone.
void choose_attention(const c10::OperatorHandle& op, Stack* stack) { replace_arguments(op, stack, {int64_t{0}}); }

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() == nullptr || result.alias_info()->isWrite()) return false;
  }
  return !schema.returns().empty();
}

/// How many operators have a kernel now. CUDA has to be initialised, since their own are registered when libraries
/// load.
int64_t install() {
  simulated::register_recurrent_kernels(c10::DispatchKey::CUDA);
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  int64_t count = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!name.name.starts_with("aten::") || name.name.starts_with("aten::_thnn_fused_") || !op || !op->hasSchema()) {
      continue;
    }
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    const bool has_kernel = op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) || is_one_of(kReplaced, full);
    if (!has_kernel || is_one_of(kKept, full) || is_view(op->schema())) continue;
    if (full == "aten::copy_") {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&copy>());
    } else if (full == "aten::_fused_sdp_choice") {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&choose_attention>());
    } else {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&compute>());
    }
    ++count;
  }
  return count;
}

}  // namespace
}  // namespace remat::simulated_cuda

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("install", &remat::simulated_cuda::install);
  module.def("set_asynchronous", &remat::simulated_cuda::set_asynchronous);
  module.def("launched_calls", &remat::simulated_cuda::launched_calls);
}

// Calls that the current stream's thread computes. What their results look like is asked of the meta device.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "device/call_values.h"
#include "kernels/call.h"
#include "kernels/cpu_view.h"

namespace remat::simulated_cuda {
namespace {

using simulated::for_cpu;
using simulated::Replacements;
using simulated::with_tensors;
using torch::jit::Stack;

std::atomic<int64_t> launched{0};

/// Everything that the stream's thread needs, tensors as addresses. Results of the CPU's kernel are copied to
/// `targets`; a place without one is that of an argument.
struct Launch {
  c10::OperatorHandle op;
  Stack arguments;
  std::vector<std::optional<at::Tensor>> targets;
};

int64_t setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

std::atomic<bool> is_asynchronous{setting("REMAT_SIMULATED_CUDA_ASYNC") != 0};
std::atomic<int64_t> kernel_microseconds{setting("REMAT_SIMULATED_CUDA_KERNEL_US")};

void compute(void* data) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(data));
  std::this_thread::sleep_for(std::chrono::microseconds(kernel_microseconds));
  const InsideKernel inside;
  static thread_local const bool is_single = (at::set_num_threads(1), true);
  static_cast<void>(is_single);
  try {
    call_cpu(launch->op, launch->arguments);
    for (size_t i = 0; i < launch->targets.size(); ++i) {
      if (launch->targets[i]) launch->targets[i]->copy_(launch->arguments[i].toTensor());
    }
  } catch (const std::exception& error) {  // there is nobody to catch it
    std::fprintf(stderr, "simulated CUDA: %s: %s\n", launch->op.schema().name().c_str(), error.what());
    std::abort();
  }
}

bool is_foretellable(const Call& call) {
  for (const at::Tag tag :
       {at::Tag::nondeterministic_seeded, at::Tag::data_dependent_output, at::Tag::dynamic_output_shape}) {
    if (call.op.hasTag(tag)) return false;
  }
  const c10::FunctionSchema& schema = call.op.schema();
  const bool returns_tensors = std::all_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get());
  });
  const bool has_generator = std::any_of(schema.arguments().begin(), schema.arguments().end(),
                                         [](const auto& argument) { return argument.name() == "generator"; });
  const bool has_indices = std::any_of(call.arguments.begin(), call.arguments.end(),
                                       [](const c10::IValue& argument) { return argument.isOptionalTensorList(); });
  return returns_tensors && !has_generator && !has_indices;
}

bool has_address(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return is_wrapped_number(tensor) || tensor.dim() == 0;
  return tensor.storage().nbytes() > 0 && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor meta_of(const at::Tensor& tensor) {
  at::Tensor meta = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  copy_wrapped_number(tensor, meta);
  return meta;
}

at::Tensor address_of(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return cpu_view(tensor);
  at::Tensor copy = tensor.clone();
  copy_wrapped_number(tensor, copy);
  return copy;
}

/// Results on the meta device; false where it has no kernel, or one that wants values.
bool foretell(const Call& call, Replacements& metas, Stack& results) {
  for (const c10::IValue& argument : call.arguments) {
    if (argument.isDevice()) {
      results.emplace_back(c10::Device(at::kMeta));
    } else {
      results.push_back(
          with_tensors(argument, [&](const at::Tensor& tensor) { return metas.replace(tensor, meta_of); }));
    }
  }
  try {
    call.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace

bool launch(const Call& call, Stack& results) {
  if (!is_asynchronous || !is_foretellable(call)) return false;
  bool all_have = true;
  for (const c10::IValue& argument : call.arguments) {
    with_tensors(argument, [&](const at::Tensor& tensor) {
      all_have = all_have && has_address(tensor);
      return tensor;
    });
  }
  if (!all_have) return false;

  const InsideKernel inside;
  Replacements metas;
  if (!foretell(call, metas, results)) return false;
  for (const auto& [tensor, meta] : metas.pairs()) {
    if (tensor.sizes() != meta.sizes()) return false;  // an `out` that is to be resized
  }
  Replacements views;
  auto launch = std::make_unique<Launch>(Launch{call.op, {}, {}});
  launch->arguments = for_cpu(call.op, call.arguments, {}, [&](const at::Tensor& tensor, bool /*written*/) {
    return views.replace(tensor, address_of);
  });
  for (c10::IValue& value : results) {
    launch->targets.emplace_back();
    value = with_tensors(value, [&](const at::Tensor& result) {
      at::Tensor original = metas.original_of(result);
      if (original.defined()) return original;
      at::Tensor made = at::empty_strided(result.sizes(), result.strides(), result.options().device(call.device));
      if (made.numel() > 0) {
        launch->targets.back() = cpu_view(made.mutable_data_ptr(), made.sizes(), made.strides(), made.dtype());
      }
      return made;
    });
  }
  ++launched;
  cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), &compute, launch.release());
  return true;
}

int64_t launched_calls() { return launched; }

void set_asynchronous(bool asynchronous, int64_t microseconds) {
  is_asynchronous = asynchronous;
  kernel_microseconds = microseconds;
}

}  // namespace remat::simulated_cuda

#include "device/computing_kernels.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include "device/call_values.h"
#include "device/generator.h"
#include "device/kernel_view.h"
#include "device/stream.h"

namespace remat::simulated {
namespace {

using torch::jit::Stack;

std::atomic<int64_t> queued_calls{0};
std::atomic<int64_t> waited_calls{0};

/// What the CPU's kernels do inside of ours is nobody's business.
class InsideKernel {
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast_{c10::autocast_dispatch_keyset};
  const at::DisableRecordFunctionGuard unobserved_;
};

void call_cpu(const c10::OperatorHandle& op, Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

struct Call {
  const c10::OperatorHandle& op;
  c10::ArrayRef<c10::IValue> arguments;
  c10::Device device;
  WorkQueue& queue;
  std::optional<uint64_t> seed = {};  // of the kernel's random numbers; none: the CPU's default generator, if any
  bool draws_on_cpu = false;
};

/// Takes this call's numbers from the generator that it was given, or from the device's.
void draw(Call& call) {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (call.op.schema().arguments()[i].name() != "generator") continue;
    if (call.arguments[i].isNone() && draw_on_cpu()) {
      call.draws_on_cpu = true;
      return;
    }
    at::Generator generator =
        call.arguments[i].isNone() ? default_generator(call.device.index()) : call.arguments[i].toGenerator();
    auto* ours = at::check_generator<Generator>(generator);
    const std::lock_guard lock(generator.mutex());
    call.seed = ours->seed_of_next_kernel();
  }
}

c10::IValue generator_of(const Call& call) {
  return call.seed ? c10::IValue(at::make_generator<at::CPUGeneratorImpl>(*call.seed)) : c10::IValue();
}

bool foretellable(const Call& call) {
  if (call.draws_on_cpu || call.op.hasTag(at::Tag::data_dependent_output) ||
      call.op.hasTag(at::Tag::dynamic_output_shape)) {
    return false;
  }
  const auto& returns = call.op.schema().returns();
  const bool tensors = std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
           result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
  return tensors && std::none_of(call.arguments.begin(), call.arguments.end(), [](const c10::IValue& argument) {
           if (!argument.isOptionalTensorList()) return false;  // indices; a mask selects as many as it has ones
           const auto indices = argument.toOptionalTensorVector();
           return std::any_of(indices.begin(), indices.end(), [](const std::optional<at::Tensor>& index) {
             return index && index->defined() &&
                    (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
           });
         });
}

at::Tensor empty_on_device(const at::Tensor& like, c10::Device device) {
  TORCH_CHECK(like.layout() == at::kStrided && !like.is_quantized(),
              "[simulated] tensors of this layout or type are "
              "not supported by the device");
  return at::empty_strided(like.sizes(), like.strides(), like.options().device(device));
}

/// The results on zeros, and the zeros; false where the kernel refuses them.
bool try_on_zeros(const Call& call, Replacements& zeros, Stack& results) {
  const InsideKernel inside;
  results = for_cpu(call.op, call.arguments, generator_of(call), [&](const at::Tensor& tensor, bool /*written*/) {
    return zeros.replace(tensor, [](const at::Tensor& original) {
      return original.is_cpu() ? copy_now(original) : zeros_in_shape_of(original);
    });
  });
  try {
    call_cpu(call.op, results);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

/// Results of the kernel are written to these tensors; a place without one is that of an argument.
using Targets = std::vector<std::optional<at::Tensor>>;

void write_results(const Stack& results, const Targets& targets) {
  size_t next = 0;
  for (const c10::IValue& value : results) {
    with_tensors(value, [&](const at::Tensor& result) {
      if (const auto& target = targets.at(next++)) {
        TORCH_CHECK(target->sizes() == result.sizes() && target->dtype() == result.dtype(),
                    "[simulated] a result has another shape than on zeros: ", result.sizes(), " instead of ",
                    target->sizes());
        target->copy_(result);
      }
      return result;
    });
  }
}

/// The arguments as the stream will see them, which nobody else refers to.
Stack on_addresses(const Call& call) {
  Replacements views;
  return for_cpu(call.op, call.arguments, generator_of(call), [&](const at::Tensor& tensor, bool /*written*/) {
    return views.replace(tensor, [](const at::Tensor& original) {
      return original.is_cpu() ? copy_now(original) : kernel_view(original);
    });
  });
}

bool queue(const Call& call, Stack& results) {
  Replacements zeros;
  if (!try_on_zeros(call, zeros, results)) return false;
  for (const auto& [tensor, zero] : zeros.pairs()) {  // an `out` that was resized
    if (!tensor.is_cpu() && tensor.sizes() != zero.sizes()) tensor.resize_(zero.sizes());
  }
  const InsideKernel inside;
  Stack arguments = on_addresses(call);
  Targets targets;
  for (c10::IValue& value : results) {
    value = with_tensors(value, [&](const at::Tensor& result) {
      at::Tensor original = zeros.original_of(result);
      if (original.defined()) {
        targets.emplace_back();
        return original;
      }
      at::Tensor made = empty_on_device(result, call.device);
      targets.emplace_back(kernel_view(made));
      return made;
    });
  }
  call.queue.submit([op = call.op, stack = std::move(arguments), targets = std::move(targets),
                     threads = at::get_num_threads()]() mutable {
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
    call_cpu(op, stack);
    write_results(stack, targets);
  });
  ++queued_calls;
  return true;
}

/// Arguments that are written to are given as copies, which a kernel may resize.
Stack wait_and_compute(const Call& call) {
  call.queue.synchronize();
  const InsideKernel inside;
  Replacements images;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  Stack results = for_cpu(call.op, call.arguments, generator_of(call), [&](const at::Tensor& tensor, bool writes) {
    return images.replace(tensor, [&](const at::Tensor& original) {
      at::Tensor image = original.is_cpu() ? copy_now(original) : kernel_view(original);
      if (!writes) return image;
      written.emplace_back(original, image.clone());
      return written.back().second;
    });
  });
  call_cpu(call.op, results);
  std::vector<std::pair<at::Tensor, at::Tensor>> computed = written;
  for (c10::IValue& value : results) {
    value = with_tensors(value, [&](const at::Tensor& result) {
      at::Tensor original = images.original_of(result);
      if (original.defined()) return original;
      computed.emplace_back(empty_on_device(result, call.device), result);
      return computed.back().first;
    });
  }
  for (const auto& [target, image] : written) {
    if (target.sizes() != image.sizes()) target.resize_(image.sizes());
  }
  call.queue.synchronize();  // memory that was given out is filled by the stream first
  for (const auto& [target, result] : computed) kernel_view(target).copy_(result);
  ++waited_calls;
  return results;
}

}  // namespace

void compute(const c10::OperatorHandle& op, Stack* stack) {
  rethrow_failure();
  const size_t count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  const c10::Device device = device_of_call(op, arguments);
  const c10::DeviceGuard guard(device);
  Call call{op, arguments, device, WorkQueue::of(current_stream(device.index()))};
  draw(call);
  Stack results;
  if (!foretellable(call) || !queue(call, results)) results = wait_and_compute(call);
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

ComputedCalls computed_calls() { return {queued_calls.load(), waited_calls.load()}; }

}  // namespace remat::simulated

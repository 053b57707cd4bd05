// Calls that wait for the current stream. Random numbers are the CPU's, from seeds that the device's generator gives.
#include <cstring>
#include <mutex>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAStream.h>

#include "device/call_values.h"
#include "kernels/call.h"
#include "kernels/cpu_view.h"

namespace remat::simulated_cuda {
namespace {

using simulated::for_cpu;
using simulated::Replacements;
using simulated::with_tensors;
using torch::jit::Stack;

constexpr uint64_t kSeedFactor = 6364136223846793005ULL;
constexpr uint64_t kOffsetFactor = 1442695040888963407ULL;

struct Randomness {
  bool is_argument = false;      ///< the operator takes a generator
  std::optional<uint64_t> seed;  ///< none: the operator draws nothing
};

Randomness draw(const Call& call) {
  Randomness randomness;
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(call.device.index());
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (call.op.schema().arguments()[i].name() != "generator") continue;
    randomness.is_argument = true;
    if (call.arguments[i].isGenerator()) generator = call.arguments[i].toGenerator();
  }
  if (!randomness.is_argument && !call.op.hasTag(at::Tag::nondeterministic_seeded)) return randomness;
  const std::lock_guard lock(generator.mutex());
  const auto [seed, offset] = at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_engine_inputs(4);
  randomness.seed = seed * kSeedFactor + offset * kOffsetFactor;
  return randomness;
}

/// An operator without such an argument (native_dropout) draws from the CPU's default generator, which is as before
/// when it is done. One at a time: backward of several devices runs on several threads.
class SeededDefaultGenerator {
 public:
  explicit SeededDefaultGenerator(uint64_t seed) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  SeededDefaultGenerator(const SeededDefaultGenerator&) = delete;
  SeededDefaultGenerator& operator=(const SeededDefaultGenerator&) = delete;

 private:
  static std::mutex& one_at_a_time() {
    static std::mutex mutex;
    return mutex;
  }

  std::lock_guard<std::mutex> alone_{one_at_a_time()};
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor before_;
};

at::Tensor image_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return tensor.storage().nbytes() == 0 ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU))
                                        : cpu_view(tensor);
}

/// The argument that this result is of, with the shape and bytes that the kernel gave it.
at::Tensor as_written(const at::Tensor& argument, const at::Tensor& result) {
  const bool has_moved = result.numel() > 0 && result.storage().data() != argument.storage().data();
  if (argument.is_cpu() || (argument.sizes() == result.sizes() && !has_moved)) return argument;
  argument.resize_(result.sizes());  // an `out`
  if (result.numel() > 0) {
    std::memcpy(argument.mutable_data_ptr(), result.contiguous().const_data_ptr(), result.nbytes());
  }
  return argument;
}

at::Tensor on_device(const at::Tensor& result, c10::Device device) {
  if (!result.is_cpu()) return result;
  at::Tensor made = at::empty_strided(result.sizes(), result.strides(), result.options().device(device));
  if (made.numel() > 0) cpu_view(made).copy_(result);
  return made;
}

}  // namespace

Stack wait_and_compute(const Call& call) {
  const Randomness randomness = draw(call);
  c10::cuda::getCurrentCUDAStream().synchronize();
  const InsideKernel inside;
  Replacements images;
  const c10::IValue generator =
      randomness.seed ? c10::IValue(at::make_generator<at::CPUGeneratorImpl>(*randomness.seed)) : c10::IValue();
  Stack results = for_cpu(call.op, call.arguments, generator,
                          [&](const at::Tensor& tensor, bool /*written*/) { return images.replace(tensor, image_of); });
  {
    std::optional<SeededDefaultGenerator> seeded;
    if (randomness.seed && !randomness.is_argument) seeded.emplace(*randomness.seed);
    call_cpu(call.op, results);
  }
  for (c10::IValue& value : results) {
    value = with_tensors(value, [&](const at::Tensor& result) {
      const at::Tensor argument = images.original_of(result);
      return argument.defined() ? as_written(argument, result) : on_device(result, call.device);
    });
  }
  return results;
}

}  // namespace remat::simulated_cuda

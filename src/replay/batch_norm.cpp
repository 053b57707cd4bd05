#include "replay/batch_norm.h"

#include <atomic>
#include <cstring>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include "device/device.h"
#include "observe/recorder.h"

namespace remat {
namespace {

/// The kernel computes x * alpha + beta with alpha = s * weight and beta = bias - mean * alpha, where s is the inverse
/// deviation in training and 1 / sqrt(running_var + eps) in evaluation. Evaluation with weight := alpha, the mean as
/// running_mean, running_var = 1 and eps = 0 therefore runs the same code with the same numbers.
at::Tensor evaluate(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                    const at::Tensor& inverse_deviation) {
  const at::Tensor alpha = weight.defined() ? inverse_deviation * weight : inverse_deviation;
  return std::get<0>(at::native_batch_norm(input, alpha, bias, mean, at::ones_like(mean), /*training=*/false,
                                           /*momentum=*/0.0, /*eps=*/0.0));
}

/// While it lives, OpenMP begins no threads for this one. A child of a process that has begun some waits for them in
/// vain, so a process that has only made a session must have none. (PyTorch's own setting is one for all threads.)
class OneThread {
 public:
  OneThread() {
    if (set_ != nullptr) set_(1);
  }
  ~OneThread() {
    if (set_ != nullptr) set_(threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int threads_ = at::get_num_threads();  // sets them, at a thread's first call
  void (*const set_)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
};

std::atomic<bool> g_same_bits{false};

/// Whether that holds in this build of PyTorch on this processor: seen, not assumed.
bool same_bits_here() {
  const Recorder::Suspension unseen;
  const c10::InferenceMode no_autograd;
  const OneThread no_others;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{20261121});
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{4, 19, 7, 9}, {3, 8, 1, 1}, {64, 33}}) {
    const at::Tensor input = at::randn(sizes, generator) * 3 + 1;
    const at::Tensor weight = at::randn({sizes[1]}, generator), bias = at::randn({sizes[1]}, generator);
    const auto [output, mean, deviation] = at::native_batch_norm(input, weight, bias, {}, {}, true, 0.1, 1e-5);
    const at::Tensor again = evaluate(input, weight, bias, mean, deviation);
    if (std::memcmp(output.const_data_ptr(), again.const_data_ptr(), output.nbytes()) != 0) return false;
  }
  return true;
}

bool is_supported(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (device::is_host(tensor.device()) && tensor.scalar_type() == at::kFloat && tensor.is_contiguous());
}

}  // namespace

bool repeat_batch_norm(torch::jit::Stack& stack, const at::Tensor& mean, const at::Tensor& inverse_deviation) {
  if (!g_same_bits.load(std::memory_order_relaxed)) return false;
  const auto tensor = [&](size_t i) { return stack[i].isTensor() ? stack[i].toTensor() : at::Tensor(); };
  const at::Tensor input = tensor(0), weight = tensor(1), bias = tensor(2);
  for (const auto& argument : {input, weight, bias, mean, inverse_deviation}) {
    if (!is_supported(argument)) return false;
  }
  at::Tensor output = evaluate(input, weight, bias, mean, inverse_deviation);
  stack = {std::move(output), mean, inverse_deviation};
  return true;
}

void check_batch_norm() {
  static const bool same_bits = same_bits_here();
  g_same_bits.store(same_bits, std::memory_order_relaxed);
}

}  // namespace remat

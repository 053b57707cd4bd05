// Batch normalization. It updates running statistics as a side effect, and some schemas do not say so: replays leave
// them alone. And what was normalized is repeated from the statistics of the call, without the two passes over the
// input that these cost, where a trial shows that this gives the same bits. Without this file the results of operators
// with running statistics are kept.
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include "device/device.h"
#include "operators/operator_info.h"
#include "operators/special_operator.h"

namespace remat {
namespace {

struct StatisticsOperator {
  std::string_view name;
  uint16_t mean, variance;
  int16_t training;  // -1: always in training
  bool optional;     // the arguments may be left out
};
constexpr std::array<StatisticsOperator, 8> kStatisticsOperators = {{
    {"aten::native_batch_norm", 3, 4, 5, true},
    {"aten::cudnn_batch_norm", 3, 4, 5, true},
    {"aten::miopen_batch_norm", 3, 4, 5, true},
    {"aten::_native_batch_norm_legit", 3, 4, 5, false},
    {"aten::_batch_norm_with_update", 3, 4, -1, false},
    {"aten::batch_norm_gather_stats", 3, 4, -1, true},
    {"aten::batch_norm_gather_stats_with_counts", 3, 4, -1, true},
    {"aten::batch_norm_update_stats", 1, 2, -1, true},
}};

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
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
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

/// A vector over the memory of `storage`.
at::Tensor vector_over(const StoragePtr& storage) {
  const int64_t channels = static_cast<int64_t>(storage->nbytes()) / static_cast<int64_t>(sizeof(float));
  return at::from_blob(
      storage->mutable_data(), {channels}, [storage](void*) {}, at::kFloat);
}

/// See Shortcut::repeat(). `kept` are mean and inverse deviation.
bool repeat(torch::jit::Stack& stack, c10::ArrayRef<StoragePtr> kept) {
  if (!g_same_bits.load(std::memory_order_relaxed)) return false;
  const auto tensor = [&](size_t i) { return stack[i].isTensor() ? stack[i].toTensor() : at::Tensor(); };
  const at::Tensor input = tensor(0), weight = tensor(1), bias = tensor(2);
  for (const at::Tensor& argument : {input, weight, bias}) {
    if (!is_supported(argument)) return false;
  }
  if (!device::is_on_host(*kept[0]) || !device::is_on_host(*kept[1])) return false;
  const at::Tensor mean = vector_over(kept[0]), inverse_deviation = vector_over(kept[1]);
  at::Tensor output = evaluate(input, weight, bias, mean, inverse_deviation);
  stack = {std::move(output), mean, inverse_deviation};
  return true;
}

/// The share was measured on a ResNet-50.
constexpr Shortcut kFromStatistics = {.first = 1, .count = 2, .share = 0.2F, .repeat = repeat};

void describe(OperatorInfo& info) {
  const bool is_pytorchs = !info.kernels.own() && !info.kernels.own_autocast();
  if (info.base_view() == "aten::native_batch_norm" && is_pytorchs) info.shortcut = &kFromStatistics;
  const auto& arguments = info.handle.schema().arguments();
  for (const StatisticsOperator& op : kStatisticsOperators) {
    if (info.base_view() != op.name || arguments.size() <= op.variance) continue;
    if (!arguments[op.mean].name().starts_with("running_mean")) continue;  // an overload without statistics
    info.statistics = {op.mean, op.variance};
    info.statistics_optional = op.optional;
    info.training_argument = op.training;
  }
}

void check() {
  static const bool same_bits = same_bits_here();
  g_same_bits.store(same_bits, std::memory_order_relaxed);
}

}  // namespace

const SpecialOperator special::kBatchNorm = {
    .name = "batch_norm", .settles = Doubt::kStatistics, .describe = describe, .check = check};

}  // namespace remat

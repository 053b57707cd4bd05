#include "tiers/parameter_parts.h"

#include <algorithm>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace remat {
namespace {

/// A parameter that is larger is updated in parts.
constexpr int64_t kPartElements = 1 << 21;

}  // namespace

std::vector<Part> parts_of(const at::Tensor& parameter) {
  const int64_t elements = parameter.numel();
  // Kernels of bfloat16 and float16 round otherwise where a loop ends, which in parts is elsewhere.
  const bool same_in_parts = parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble;
  if (elements <= kPartElements || !same_in_parts || !parameter.is_contiguous()) return {{0, elements}};
  const int64_t count = (elements + kPartElements - 1) / kPartElements;
  const int64_t size = ((elements + count - 1) / count + 15) / 16 * 16;  // whole cache lines
  std::vector<Part> parts;
  for (int64_t begin = 0; begin < elements; begin += size) parts.emplace_back(begin, std::min(begin + size, elements));
  return parts;
}

at::Tensor slice(const at::Tensor& flat, const Part& part) { return flat.slice(0, part.first, part.second); }

at::Tensor part_of(const at::Tensor& parameter, const Part& part) {
  at::Tensor target = slice(parameter.detach().view(-1), part);
  const at::Tensor& gradient = parameter.grad();
  if (gradient.defined()) target.mutable_grad() = slice(gradient.detach().reshape(-1), part);
  return target;
}

std::vector<at::Tensor*> tensors_of(torch::optim::OptimizerParamState& state) {
  if (auto* const adamw = dynamic_cast<torch::optim::AdamWParamState*>(&state)) {
    return {&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()};
  }
  if (auto* const adam = dynamic_cast<torch::optim::AdamParamState*>(&state)) {
    return {&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()};
  }
  if (auto* const sgd = dynamic_cast<torch::optim::SGDParamState*>(&state)) return {&sgd->momentum_buffer()};
  if (auto* const rmsprop = dynamic_cast<torch::optim::RMSpropParamState*>(&state)) {
    return {&rmsprop->square_avg(), &rmsprop->momentum_buffer(), &rmsprop->grad_avg()};
  }
  return {&dynamic_cast<torch::optim::AdagradParamState&>(state).sum()};
}

}  // namespace remat

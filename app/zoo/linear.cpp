#include "zoo/linear.h"

#include <cmath>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {

at::Tensor LinearImpl::forward(const at::Tensor& x) {
  const auto y = torch::nn::LinearImpl::forward(x);
  if (!has_factors()) return y;
  // Scaled where it is small: (..., rank).
  return y + at::linear(at::linear(x, a_) * scale_, b_);
}

void LinearImpl::add_factors(int64_t rank, double scale) {
  if (has_factors()) throw Error("[lora] a linear layer has factors already; give them to a layer once");
  scale_ = scale;
  a_ = register_parameter("lora_a", torch::empty({rank, options.in_features()}));
  b_ = register_parameter("lora_b", torch::zeros({options.out_features(), rank}));
  torch::nn::init::kaiming_uniform_(a_, std::sqrt(5.0));  // within 1 / sqrt(in), as the layer's own weight at first
}

at::Tensor LinearImpl::merged_weight() const {
  if (!has_factors()) return weight;
  const torch::NoGradGuard no_grad;
  return weight + at::mm(b_, a_) * scale_;
}

}  // namespace remat::zoo

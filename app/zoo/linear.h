// zoo/linear.h -- a linear layer that low-rank factors may stand beside (LoRA).
#pragma once

#include <torch/nn/modules/linear.h>

namespace remat::zoo {

/// torch::nn::Linear until it gets factors.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  /// x W^T + bias; with factors + scale (x A^T) B^T (Hu et al. 2021, equation 3).
  at::Tensor forward(const at::Tensor& x);

  /// Registers A (rank, in) as the parameter "lora_a" and B (out, rank) as "lora_b". A is drawn from the default
  /// generator and B is zero, so that the layer computes what it did before. The weight stays as it is: to freeze it is
  /// the caller's. Throws remat::Error where the layer has factors already.
  void add_factors(int64_t rank, double scale);

  bool has_factors() const { return a_.defined(); }
  const at::Tensor& lora_a() const { return a_; }
  const at::Tensor& lora_b() const { return b_; }

  /// Of a layer without factors that computes the same: W + scale B A, not trained. Without factors W itself.
  at::Tensor merged_weight() const;

 private:
  at::Tensor a_, b_;
  double scale_ = 0;
};
TORCH_MODULE(Linear);

}  // namespace remat::zoo

// zoo/decoder_block.h -- what a decoder repeats: attention and gated feed-forward layers, each behind a norm.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "zoo/decoder_config.h"
#include "zoo/linear.h"

namespace remat::zoo {

/// Zhang and Sennrich 2019, without a bias.
class RmsNormImpl : public torch::nn::Module {
 public:
  /// `about_one`: multiplies by 1 + weight, and weights are zeros at first.
  RmsNormImpl(int64_t width, double eps, bool about_one);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  double eps_;
  bool about_one_;
  at::Tensor weight_;
};
TORCH_MODULE(RmsNorm);

/// What attention of all layers of a kind shares.
struct Positions {
  Rotation rotation;
  at::Tensor mask;  ///< (seq, seq), added to scores: 0, or minus infinity for tokens that are not seen; none: causal
};

class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const DecoderConfig& config);

  /// `x`: (batch, seq, width). Where scores are capped `positions` have a mask.
  at::Tensor forward(at::Tensor x, const Positions& positions);

 private:
  at::Tensor attention(const at::Tensor& x, const Positions& positions);
  at::Tensor mix(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& mask) const;
  at::Tensor feed_forward(const at::Tensor& x);
  at::Tensor activate(const at::Tensor& x) const;

  DecoderConfig config_;
  RmsNorm norm1_, norm2_;
  RmsNorm attention_norm_{nullptr}, feedforward_norm_{nullptr}, query_norm_{nullptr}, key_norm_{nullptr};
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, qkv_{nullptr}, proj_{nullptr};
  Linear gate_{nullptr}, up_{nullptr}, gate_up_{nullptr}, down_{nullptr};
};

}  // namespace remat::zoo

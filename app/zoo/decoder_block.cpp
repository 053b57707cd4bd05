#include "zoo/decoder_block.h"

#include <cmath>

#include <torch/torch.h>

namespace remat::zoo {

RmsNormImpl::RmsNormImpl(int64_t width, double eps, bool about_one) : eps_(eps), about_one_(about_one) {
  weight_ = register_parameter("weight", about_one ? torch::zeros({width}) : torch::ones({width}));
}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) const {
  const auto normalized = x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps_);
  return about_one_ ? normalized * (1 + weight_) : weight_ * normalized;
}

DecoderBlock::DecoderBlock(const DecoderConfig& config)
    : config_(config),
      norm1_(config.width, config.norm_eps, config.norms_about_one),
      norm2_(config.width, config.norm_eps, config.norms_about_one) {
  const auto norm = [&](const char* name, int64_t width) {
    return register_module(name, RmsNorm(width, config.norm_eps, config.norms_about_one));
  };
  const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, Linear(torch::nn::LinearOptions(in, out).bias(bias)));
  };
  const int64_t queries = config.heads * config.head_width, keys = config.key_heads * config.head_width;
  register_module("norm1", norm1_);
  if (config.fused) {
    qkv_ = linear("qkv", config.width, queries + 2 * keys, config.qkv_bias);
  } else {
    query_ = linear("query", config.width, queries, config.qkv_bias);
    key_ = linear("key", config.width, keys, config.qkv_bias);
    value_ = linear("value", config.width, keys, config.qkv_bias);
  }
  if (config.query_norms) {
    query_norm_ = norm("query_norm", config.head_width);
    key_norm_ = norm("key_norm", config.head_width);
  }
  proj_ = linear("proj", queries, config.width, config.projection_bias);
  if (config.branch_norms) attention_norm_ = norm("attention_norm", config.width);
  register_module("norm2", norm2_);
  if (config.fused) {
    gate_up_ = linear("gate_up", config.width, 2 * config.hidden, config.feedforward_bias);
  } else {
    gate_ = linear("gate", config.width, config.hidden, config.feedforward_bias);
    up_ = linear("up", config.width, config.hidden, config.feedforward_bias);
  }
  down_ = linear("down", config.hidden, config.width, config.feedforward_bias);
  if (config.branch_norms) feedforward_norm_ = norm("feedforward_norm", config.width);
}

at::Tensor DecoderBlock::forward(at::Tensor x, const Positions& positions) {
  const auto attended = attention(norm1_(x), positions);
  x = x + (config_.branch_norms ? attention_norm_(attended) : attended);
  const auto fed = feed_forward(norm2_(x));
  return x + (config_.branch_norms ? feedforward_norm_(fed) : fed);
}

at::Tensor DecoderBlock::attention(const at::Tensor& x, const Positions& positions) {
  const auto batch = x.size(0), seq = x.size(1);
  const int64_t queries = config_.heads * config_.head_width, keys = config_.key_heads * config_.head_width;
  std::vector<at::Tensor> parts;
  if (config_.fused) {
    parts = qkv_(x).split_with_sizes({queries, keys, keys}, -1);
  } else {
    parts = {query_(x), key_(x), value_(x)};
  }
  const auto split = [&](const at::Tensor& t, int64_t heads) {
    return t.view({batch, seq, heads, config_.head_width}).transpose(1, 2);
  };
  auto query = split(parts[0], config_.heads), key = split(parts[1], config_.key_heads);
  if (config_.query_norms) query = query_norm_(query), key = key_norm_(key);
  const auto for_all_heads = [&](const at::Tensor& t) {  // each as often as heads of queries share it
    return t.repeat_interleave(config_.heads / config_.key_heads, 1);
  };
  const auto mixed = mix(rotate(query, positions.rotation), for_all_heads(rotate(key, positions.rotation)),
                         for_all_heads(split(parts[2], config_.key_heads)), positions.mask);
  return proj_(mixed.transpose(1, 2).reshape({batch, seq, queries}));
}

at::Tensor DecoderBlock::mix(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const at::Tensor& mask) const {
  if (config_.attention_cap > 0) {
    const double scale = config_.attention_scale.value_or(1 / std::sqrt(static_cast<double>(config_.head_width)));
    const auto scores = at::matmul(query, key.transpose(2, 3)) * (scale / config_.attention_cap);
    return at::matmul(at::softmax(at::tanh(scores) * config_.attention_cap + mask, -1), value);
  }
  const auto shown = mask.defined() ? std::optional(mask) : std::nullopt;
  return at::scaled_dot_product_attention(query, key, value, shown, 0.0, /*is_causal=*/!shown, config_.attention_scale);
}

at::Tensor DecoderBlock::feed_forward(const at::Tensor& x) {
  if (!config_.fused) return down_(activate(gate_(x)) * up_(x));
  const auto halves = gate_up_(x).chunk(2, -1);
  return down_(activate(halves[0]) * halves[1]);
}

at::Tensor DecoderBlock::activate(const at::Tensor& x) const {
  return config_.activation == GateActivation::kSilu ? at::silu(x) : at::gelu(x, "tanh");
}

}  // namespace remat::zoo

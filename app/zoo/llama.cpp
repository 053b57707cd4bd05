#include "zoo/llama.h"

#include <numbers>

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/linear.h"

namespace remat::zoo {
namespace {

Linear linear(int64_t in, int64_t out) { return Linear(torch::nn::LinearOptions(in, out).bias(false)); }

class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double eps) : eps_(eps) { weight_ = register_parameter("weight", torch::ones({width})); }
  at::Tensor forward(const at::Tensor& x) const {
    return weight_ * (x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps_));
  }

 private:
  double eps_;
  at::Tensor weight_;
};
TORCH_MODULE(RmsNorm);

/// Cosines and sines of every position's angles: (seq, head width) each.
struct Rotation {
  at::Tensor cos, sin;
};

/// Su et al. 2021, RoFormer, equation 15; the two numbers that are rotated together are half a head apart.
Rotation rotation(const LlamaConfig& config, int64_t seq, const at::Tensor& like) {
  const auto options = like.options().dtype(at::kFloat);
  const auto exponents = at::arange(0, config.head_width, 2, options) / static_cast<double>(config.head_width);
  auto frequencies = at::pow(config.rope_theta, exponents).reciprocal();
  if (config.rope_scaling) {
    const RopeScaling& scaling = *config.rope_scaling;
    const auto turns = frequencies * (static_cast<double>(scaling.trained_seq) / (2 * std::numbers::pi));
    const auto unscaled =  // which share of the frequency stays as it is
        ((turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)).clamp(0, 1);
    frequencies = frequencies * ((1 - unscaled) / scaling.factor + unscaled);
  }
  const auto angles = at::outer(at::arange(seq, options), frequencies);
  const auto both = at::cat({angles, angles}, -1);
  return {both.cos(), both.sin()};
}

at::Tensor rotate(const at::Tensor& x, const Rotation& by) {
  const auto halves = x.chunk(2, -1);
  return x * by.cos + at::cat({-halves[1], halves[0]}, -1) * by.sin;
}

class LlamaBlock : public torch::nn::Module {
 public:
  explicit LlamaBlock(const LlamaConfig& config)
      : config_(config),
        norm1_(config.width, config.norm_eps),
        norm2_(config.width, config.norm_eps),
        query_(linear(config.width, config.heads * config.head_width)),
        key_(linear(config.width, config.key_heads * config.head_width)),
        value_(linear(config.width, config.key_heads * config.head_width)),
        proj_(linear(config.heads * config.head_width, config.width)),
        gate_(linear(config.width, config.hidden)),
        up_(linear(config.width, config.hidden)),
        down_(linear(config.hidden, config.width)) {
    register_module("norm1", norm1_);
    register_module("query", query_);
    register_module("key", key_);
    register_module("value", value_);
    register_module("proj", proj_);
    register_module("norm2", norm2_);
    register_module("gate", gate_);
    register_module("up", up_);
    register_module("down", down_);
  }

  at::Tensor forward(at::Tensor x, const Rotation& positions) {
    x = x + attention(norm1_(x), positions);
    const auto h = norm2_(x);
    return x + down_(at::silu(gate_(h)) * up_(h));
  }

 private:
  at::Tensor attention(const at::Tensor& x, const Rotation& positions) {
    const auto batch = x.size(0), seq = x.size(1);
    const auto split = [&](const at::Tensor& t, int64_t heads) {
      return t.view({batch, seq, heads, config_.head_width}).transpose(1, 2);
    };
    const auto query = rotate(split(query_(x), config_.heads), positions);
    const auto key = for_all_heads(rotate(split(key_(x), config_.key_heads), positions));
    const auto value = for_all_heads(split(value_(x), config_.key_heads));
    const auto mixed = at::scaled_dot_product_attention(query, key, value, {}, 0.0, /*is_causal=*/true);
    return proj_(mixed.transpose(1, 2).reshape({batch, seq, config_.heads * config_.head_width}));
  }

  /// Each head of keys or values, as often as heads of queries share it.
  at::Tensor for_all_heads(const at::Tensor& t) const {
    return t.repeat_interleave(config_.heads / config_.key_heads, 1);
  }

  LlamaConfig config_;
  RmsNorm norm1_, norm2_;
  Linear query_, key_, value_, proj_, gate_, up_, down_;
};

class Llama : public Model {
 public:
  explicit Llama(const LlamaConfig& config)
      : config_(config),
        tokens_(torch::nn::EmbeddingOptions(config.vocab, config.width).padding_idx(config.padding)),
        norm_(config.width, config.norm_eps) {
    register_module("tokens", tokens_);
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<LlamaBlock>(config)));
      add_block_parameters(blocks_.back()->parameters());
    }
    register_module("norm", norm_);
    if (!config.tied) {
      const auto options = torch::nn::LinearOptions(config.width, config.vocab).bias(false);
      output_ = register_module("output", torch::nn::Linear(options));
    }
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      if (parameter.dim() == 2) torch::nn::init::normal_(parameter, 0.0, 0.02);
    }
  }

  at::Tensor forward(at::Tensor tokens) override {
    const auto positions = rotation(config_, tokens.size(1), tokens);
    auto x = tokens_(tokens);
    for (const auto& block : blocks_) {
      x = run_block([block, positions](at::Tensor h) { return block->forward(std::move(h), positions); }, std::move(x));
    }
    return at::linear(norm_(x), config_.tied ? tokens_->weight : output_->weight);
  }

 private:
  LlamaConfig config_;
  torch::nn::Embedding tokens_;
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  RmsNorm norm_;
  torch::nn::Linear output_{nullptr};
};

void check(const LlamaConfig& config) {
  for (const int64_t size :
       {config.layers, config.width, config.heads, config.key_heads, config.head_width, config.hidden, config.vocab}) {
    if (size >= 1) continue;
    throw Error(
        "[llama] layers, width, heads, key_heads, head_width, hidden and vocab must each be 1 or more; give a larger "
        "one");
  }
  if (config.padding && (*config.padding < 0 || *config.padding >= config.vocab)) {
    throw Error("[llama] padding is token " + std::to_string(*config.padding) + " of " + std::to_string(config.vocab) +
                "; give one that there is");
  }
  if (config.heads % config.key_heads != 0) {
    throw Error("[llama] heads " + std::to_string(config.heads) + " is not a multiple of key_heads " +
                std::to_string(config.key_heads) + "; change one of them");
  }
  if (config.head_width % 2 != 0) {
    throw Error("[llama] head_width is " + std::to_string(config.head_width) +
                ", and rotary positions need pairs; give an even number");
  }
  if (!(config.norm_eps > 0) || !(config.rope_theta > 0)) {
    throw Error("[llama] norm_eps and rope_theta must be more than 0; give a larger one");
  }
  if (const auto& scaling = config.rope_scaling;
      scaling && !(scaling->factor > 0 && scaling->high_frequency > scaling->low_frequency)) {
    throw Error(
        "[llama] the factor of rope_scaling must be more than 0, and high_frequency more than low_frequency; "
        "change them");
  }
}

}  // namespace

std::shared_ptr<Model> make_llama(const LlamaConfig& config) {
  check(config);
  return std::make_shared<Llama>(config);
}

int64_t parameter_count(const LlamaConfig& config) {
  const int64_t queries = config.width * config.heads * config.head_width;
  const int64_t keys = config.width * config.key_heads * config.head_width;
  const int64_t block = 2 * config.width + 2 * queries + 2 * keys + 3 * config.width * config.hidden;
  return (config.tied ? 1 : 2) * config.vocab * config.width + config.layers * block + config.width;
}

}  // namespace remat::zoo

#include "zoo/gpt.h"

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "zoo/linear.h"

namespace remat::zoo {
namespace {

namespace F = torch::nn::functional;

torch::nn::LayerNormOptions norm_options(const GptConfig& config) {
  return torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps);
}

int64_t hidden_width(const GptConfig& config) { return config.hidden > 0 ? config.hidden : 4 * config.width; }

class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const GptConfig& config)
      : config_(config),
        norm1_(norm_options(config)),
        norm2_(norm_options(config)),
        qkv_(config.width, 3 * config.width),
        proj_(config.width, config.width),
        up_(config.width, hidden_width(config)),
        down_(hidden_width(config), config.width) {
    register_module("norm1", norm1_);
    register_module("qkv", qkv_);
    register_module("proj", proj_);
    register_module("norm2", norm2_);
    register_module("up", up_);
    register_module("down", down_);
  }

  at::Tensor forward(at::Tensor x) {
    x = x + drop(proj_(attention(norm1_(x))));
    return x + drop(down_(at::gelu(up_(norm2_(x)), "tanh")));
  }

 private:
  at::Tensor attention(const at::Tensor& x) {
    const auto batch = x.size(0), seq = x.size(1), width = x.size(2);
    auto parts = qkv_(x).split(width, 2);
    for (auto& part : parts) part = part.view({batch, seq, config_.heads, width / config_.heads}).transpose(1, 2);
    const double dropout = is_training() ? config_.attention_dropout : 0.0;
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, dropout, /*is_causal=*/true);
    return mixed.transpose(1, 2).reshape({batch, seq, width});
  }

  at::Tensor drop(const at::Tensor& x) const { return at::dropout(x, config_.dropout, is_training()); }

  GptConfig config_;
  torch::nn::LayerNorm norm1_, norm2_;
  Linear qkv_, proj_, up_, down_;
};

class Gpt : public Model {
 public:
  explicit Gpt(const GptConfig& config)
      : config_(config),
        tokens_(config.vocab, config.width),
        positions_(config.seq, config.width),
        norm_(norm_options(config)) {
    register_module("tokens", tokens_);
    register_module("positions", positions_);
    for (int64_t i = 0; i < config.layers; ++i) {
      auto block = std::make_shared<DecoderBlock>(config);
      register_module("block" + std::to_string(i), block);
      add_block([block](at::Tensor x) { return block->forward(std::move(x)); }, block->parameters());
    }
    register_module("norm", norm_);
    for (auto& weight : {tokens_->weight, positions_->weight}) torch::nn::init::normal_(weight, 0.0, 0.02);
  }

  at::Tensor forward(at::Tensor tokens) override { return F::linear(hidden(tokens), tokens_->weight); }

  std::optional<HeadInput> forward_to_head(at::Tensor tokens) override {
    return HeadInput{hidden(tokens), tokens_->weight, {}};
  }

 private:
  at::Tensor hidden(const at::Tensor& tokens) {
    const auto position = at::arange(tokens.size(1), at::TensorOptions().dtype(at::kLong).device(tokens.device()));
    auto x = at::dropout(tokens_(tokens) + positions_(position), config_.dropout, is_training());
    return norm_(run_blocks(x));
  }

  GptConfig config_;
  torch::nn::Embedding tokens_, positions_;
  torch::nn::LayerNorm norm_;
};

void check(const GptConfig& config) {
  if (config.layers < 1 || config.width < 1 || config.heads < 1 || config.seq < 1 || config.vocab < 1) {
    throw Error("[gpt] layers, width, heads, seq and vocab must each be 1 or more; give a larger one");
  }
  if (config.width % config.heads != 0) {
    throw Error("[gpt] width " + std::to_string(config.width) + " is not a multiple of heads " +
                std::to_string(config.heads) + "; change one of them");
  }
  for (const double dropout : {config.dropout, config.attention_dropout}) {
    if (dropout >= 0 && dropout < 1) continue;
    throw Error("[gpt] dropout is " + support::short_text(dropout) + "; give a number from 0 up to, not including, 1");
  }
}

}  // namespace

std::shared_ptr<Model> make_gpt(const GptConfig& config) {
  check(config);
  return std::make_shared<Gpt>(config);
}

int64_t parameter_count(const GptConfig& config) {
  const int64_t width = config.width, norm = 2 * width;
  const int64_t attention = width * 3 * width + 3 * width + width * width + width;
  const int64_t feed_forward = 2 * width * hidden_width(config) + hidden_width(config) + width;
  return (config.vocab + config.seq) * width + config.layers * (2 * norm + attention + feed_forward) + norm;
}

}  // namespace remat::zoo

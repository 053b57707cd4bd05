#include "zoo/decoder.h"

#include <algorithm>
#include <limits>

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/decoder_block.h"

namespace remat::zoo {
namespace {

/// Adds minus infinity to scores of tokens behind, and of those a `window` or more before; 0: none is too far.
at::Tensor attention_mask(int64_t seq, int64_t window, const at::Tensor& like) {
  const auto hidden = at::full({seq, seq}, -std::numeric_limits<double>::infinity(), like.options().dtype(at::kFloat));
  return window > 0 && window < seq ? hidden.triu(1) + hidden.tril(-window) : hidden.triu(1);
}

at::Tensor cap(const at::Tensor& x, double most) { return most > 0 ? at::tanh(x / most) * most : x; }

class Decoder : public Model {
 public:
  explicit Decoder(const DecoderConfig& config)
      : config_(config),
        tokens_(torch::nn::EmbeddingOptions(config.vocab, config.width).padding_idx(config.padding)),
        norm_(config.width, config.norm_eps, config.norms_about_one) {
    register_module("tokens", tokens_);
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<DecoderBlock>(config)));
      add_block_parameters(blocks_.back()->parameters());
    }
    register_module("norm", norm_);
    if (!config.tied) {
      const auto options = torch::nn::LinearOptions(config.width, config.vocab).bias(false);
      output_ = register_module("output", torch::nn::Linear(options));
    }
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      if (parameter.value().dim() == 2) torch::nn::init::normal_(parameter.value(), 0.0, 0.02);
      if (parameter.key().ends_with("bias")) parameter.value().zero_();
    }
  }

  at::Tensor forward(at::Tensor tokens) override {
    return cap(at::linear(hidden(tokens), output_weight()), config_.logit_cap);
  }

  std::optional<HeadInput> forward_to_head(at::Tensor tokens) override {
    if (config_.logit_cap > 0) return std::nullopt;
    return HeadInput{hidden(tokens), output_weight(), {}};
  }

 private:
  const at::Tensor& output_weight() const { return config_.tied ? tokens_->weight : output_->weight; }

  at::Tensor hidden(const at::Tensor& tokens) {
    const bool any_window = std::ranges::find(config_.windowed, true) != config_.windowed.end();
    const auto whole = positions(config_.rotary, 0, tokens);
    const auto near =
        any_window ? positions(config_.window_rotary.value_or(config_.rotary), config_.window, tokens) : whole;
    auto x = tokens_(tokens);
    if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const auto& seen = !config_.windowed.empty() && config_.windowed[i] ? near : whole;
      x = run_block([block = blocks_[i], seen](at::Tensor h) { return block->forward(std::move(h), seen); },
                    std::move(x));
    }
    return norm_(x);
  }

  /// A mask is left out where the causal one will do.
  Positions positions(const RotaryConfig& rotary, int64_t window, const at::Tensor& tokens) const {
    const int64_t seq = tokens.size(1);
    Positions result{make_rotation(rotary, seq, tokens), {}};
    const bool far = window > 0 && window < seq;
    if (far || config_.attention_cap > 0) result.mask = attention_mask(seq, window, tokens);
    return result;
  }

  DecoderConfig config_;
  torch::nn::Embedding tokens_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  RmsNorm norm_;
  torch::nn::Linear output_{nullptr};
};

void check(const DecoderConfig& config) {
  for (const int64_t size :
       {config.layers, config.width, config.heads, config.key_heads, config.head_width, config.hidden, config.vocab}) {
    if (size >= 1) continue;
    throw Error(
        "[decoder] layers, width, heads, key_heads, head_width, hidden and vocab must each be 1 or more; give a larger "
        "one");
  }
  if (config.padding && (*config.padding < 0 || *config.padding >= config.vocab)) {
    throw Error("[decoder] padding is token " + std::to_string(*config.padding) + " of " +
                std::to_string(config.vocab) + "; give one that there is");
  }
  if (config.heads % config.key_heads != 0) {
    throw Error("[decoder] heads " + std::to_string(config.heads) + " is not a multiple of key_heads " +
                std::to_string(config.key_heads) + "; change one of them");
  }
  if (!(config.norm_eps > 0) || !(config.embedding_scale > 0) || !(config.attention_scale.value_or(1) > 0) ||
      !(config.attention_cap >= 0) || !(config.logit_cap >= 0)) {
    throw Error(
        "[decoder] norm_eps, embedding_scale and attention_scale must be more than 0, attention_cap and logit_cap 0 or "
        "more; give a larger one");
  }
  if (!config.windowed.empty() && (std::ssize(config.windowed) != config.layers || config.window < 1)) {
    throw Error("[decoder] windowed has " + std::to_string(config.windowed.size()) + " of " +
                std::to_string(config.layers) + " layers, and their window is " + std::to_string(config.window) +
                " tokens; name all layers, and give a window of 1 or more");
  }
  for (const auto& rotary : {config.rotary, config.window_rotary.value_or(config.rotary)}) {
    check_rotary(rotary, "[decoder]");
    if (rotary.width <= config.head_width) continue;
    throw Error("[decoder] rotary positions rotate " + std::to_string(rotary.width) + " numbers of a head of " +
                std::to_string(config.head_width) + "; give fewer");
  }
}

}  // namespace

std::shared_ptr<Model> make_decoder(const DecoderConfig& config) {
  check(config);
  return std::make_shared<Decoder>(config);
}

int64_t parameter_count(const DecoderConfig& config) {
  const int64_t queries = config.heads * config.head_width, keys = config.key_heads * config.head_width;
  int64_t block = (config.branch_norms ? 4 : 2) * config.width + 2 * config.width * (queries + keys) +
                  3 * config.width * config.hidden;
  if (config.qkv_bias) block += queries + 2 * keys;
  if (config.projection_bias) block += config.width;
  if (config.feedforward_bias) block += 2 * config.hidden + config.width;
  if (config.query_norms) block += 2 * config.head_width;
  return (config.tied ? 1 : 2) * config.vocab * config.width + config.layers * block + config.width;
}

}  // namespace remat::zoo

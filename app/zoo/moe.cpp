#include "zoo/moe.h"

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

namespace F = torch::nn::functional;

/// The balance losses of the layers that a forward pass went through.
using Losses = std::vector<at::Tensor>;

torch::nn::LayerNormOptions norm_options(int64_t width) { return torch::nn::LayerNormOptions({width}); }

class Expert : public torch::nn::Module {
 public:
  Expert(int64_t width, int64_t hidden) : up_(width, hidden), down_(hidden, width) {
    register_module("up", up_);
    register_module("down", down_);
  }

  at::Tensor forward(const at::Tensor& x) { return down_(at::gelu(up_(x))); }

 private:
  torch::nn::Linear up_, down_;
};

class Mixture : public torch::nn::Module {
 public:
  explicit Mixture(const MoeConfig& config)
      : top_k_(config.top_k), router_(torch::nn::LinearOptions(config.width, config.experts).bias(false)) {
    register_module("router", router_);
    for (int64_t i = 0; i < config.experts; ++i) {
      auto expert = std::make_shared<Expert>(config.width, config.hidden);
      experts_.push_back(register_module("expert" + std::to_string(i), expert));
    }
  }

  /// Appends the balance loss to `losses`, where there are any.
  at::Tensor forward(const at::Tensor& x, Losses* losses) {
    const auto tokens = x.flatten(0, 1);
    const auto scores = router_(tokens);
    const auto [best, chosen] = scores.topk(top_k_);
    if (losses != nullptr) losses->push_back(balance_loss(at::softmax(scores, -1), chosen));
    const auto choices = chosen.flatten(), weights = at::softmax(best, -1).flatten();  // top_k_ of each token
    auto result = at::zeros_like(tokens);
    for (size_t i = 0; i < experts_.size(); ++i) {
      const auto places = choices.eq(static_cast<int64_t>(i)).nonzero().squeeze(1);
      if (places.numel() == 0) continue;
      const auto rows = at::div(places, top_k_, "floor");
      const auto output = experts_[i]->forward(tokens.index_select(0, rows));
      result = result.index_add(0, rows, output * weights.index_select(0, places).unsqueeze(1));
    }
    return result.view_as(x);
  }

 private:
  at::Tensor balance_loss(const at::Tensor& probabilities, const at::Tensor& chosen) const {
    const auto count = static_cast<int64_t>(experts_.size());
    const auto shares = at::one_hot(chosen.flatten(), count).to(probabilities.scalar_type()).mean(0);
    return static_cast<double>(count) * (shares * probabilities.mean(0)).sum();
  }

  int64_t top_k_;
  torch::nn::Linear router_;
  std::vector<std::shared_ptr<Expert>> experts_;
};

class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const MoeConfig& config)
      : heads_(config.heads),
        norm1_(norm_options(config.width)),
        norm2_(norm_options(config.width)),
        qkv_(config.width, 3 * config.width),
        proj_(config.width, config.width),
        mixture_(std::make_shared<Mixture>(config)) {
    register_module("norm1", norm1_);
    register_module("qkv", qkv_);
    register_module("proj", proj_);
    register_module("norm2", norm2_);
    register_module("mixture", mixture_);
  }

  at::Tensor forward(at::Tensor x, Losses* losses) {
    x = x + proj_(attention(norm1_(x)));
    return x + mixture_->forward(norm2_(x), losses);
  }

 private:
  at::Tensor attention(const at::Tensor& x) {
    const auto batch = x.size(0), seq = x.size(1), width = x.size(2);
    auto parts = qkv_(x).split(width, 2);
    for (auto& part : parts) part = part.view({batch, seq, heads_, width / heads_}).transpose(1, 2);
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    return mixed.transpose(1, 2).reshape({batch, seq, width});
  }

  int64_t heads_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear qkv_, proj_;
  std::shared_ptr<Mixture> mixture_;
};

class Moe : public MoeModel {
 public:
  explicit Moe(const MoeConfig& config)
      : tokens_(config.vocab, config.width), positions_(config.seq, config.width), norm_(norm_options(config.width)) {
    register_module("tokens", tokens_);
    register_module("positions", positions_);
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<DecoderBlock>(config)));
    }
    register_module("norm", norm_);
    for (auto& weight : {tokens_->weight, positions_->weight}) torch::nn::init::normal_(weight, 0.0, 0.02);
  }

  at::Tensor forward(at::Tensor tokens) override { return logits(tokens, nullptr); }

  std::optional<HeadInput> forward_to_head(at::Tensor tokens) override {
    return HeadInput{hidden(tokens, nullptr), tokens_->weight, {}};
  }

  std::pair<at::Tensor, at::Tensor> forward_with_balance(at::Tensor tokens) override {
    const auto losses = std::make_shared<Losses>();
    auto result = logits(tokens, losses);
    return {std::move(result), at::stack(*losses).mean()};
  }

 private:
  at::Tensor logits(const at::Tensor& tokens, const std::shared_ptr<Losses>& losses) {
    return F::linear(hidden(tokens, losses), tokens_->weight);
  }

  at::Tensor hidden(const at::Tensor& tokens, const std::shared_ptr<Losses>& losses) {
    const auto position = at::arange(tokens.size(1), at::TensorOptions().dtype(at::kLong).device(tokens.device()));
    auto x = tokens_(tokens) + positions_(position);
    for (const auto& block : blocks_) {
      x = run_block([block, losses](at::Tensor h) { return block->forward(std::move(h), losses.get()); }, std::move(x));
    }
    return norm_(x);
  }

  torch::nn::Embedding tokens_, positions_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  torch::nn::LayerNorm norm_;
};

void check(const MoeConfig& config) {
  for (const int64_t size : {config.layers, config.width, config.heads, config.hidden, config.experts, config.top_k,
                             config.seq, config.vocab}) {
    if (size < 1) {
      throw Error(
          "[moe] layers, width, heads, hidden, experts, top_k, seq and vocab must each be 1 or more; give a "
          "larger one");
    }
  }
  if (config.width % config.heads != 0) {
    throw Error("[moe] width " + std::to_string(config.width) + " is not a multiple of heads " +
                std::to_string(config.heads) + "; change one of them");
  }
  if (config.top_k > config.experts) {
    throw Error("[moe] top_k is " + std::to_string(config.top_k) + ", of " + std::to_string(config.experts) +
                " experts; give a smaller one, or more experts");
  }
}

}  // namespace

std::shared_ptr<MoeModel> make_moe(const MoeConfig& config) {
  check(config);
  return std::make_shared<Moe>(config);
}

}  // namespace remat::zoo

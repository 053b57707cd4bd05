#include "zoo/bert.h"

#include <cmath>
#include <limits>

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "zoo/linear.h"

namespace remat::zoo {
namespace {

torch::nn::LayerNormOptions norm_options(const BertConfig& config) {
  return torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps);
}

class EncoderLayer : public torch::nn::Module {
 public:
  explicit EncoderLayer(const BertConfig& config)
      : config_(config),
        query_(config.width, config.width),
        key_(config.width, config.width),
        value_(config.width, config.width),
        proj_(config.width, config.width),
        up_(config.width, config.hidden),
        down_(config.hidden, config.width),
        norm1_(norm_options(config)),
        norm2_(norm_options(config)) {
    register_module("query", query_);
    register_module("key", key_);
    register_module("value", value_);
    register_module("proj", proj_);
    register_module("norm1", norm1_);
    register_module("up", up_);
    register_module("down", down_);
    register_module("norm2", norm2_);
  }

  /// `bias` is added to attention scores: 0 for tokens, the lowest number for padding.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias) {
    const auto attended = proj_(attention(x, bias));
    const auto h = norm1_(x + (config_.drops_attended ? drop(attended) : attended));
    return norm2_(h + drop(down_(at::gelu(up_(h)))));
  }

 private:
  /// Every intermediate is a tensor of its own, as where no fused kernel is used.
  at::Tensor attention(const at::Tensor& x, const at::Tensor& bias) {
    const auto batch = x.size(0), seq = x.size(1), width = x.size(2);
    const auto split = [&](const at::Tensor& t) {
      return t.view({batch, seq, config_.heads, width / config_.heads}).transpose(1, 2);
    };
    const auto query = split(query_(x)), key = split(key_(x)), value = split(value_(x));
    const double scale = 1 / std::sqrt(static_cast<double>(width) / static_cast<double>(config_.heads));
    const auto scores = at::matmul(query, key.transpose(2, 3)) * scale + bias;
    const auto weights = at::dropout(at::softmax(scores, -1), config_.attention_dropout, is_training());
    return at::matmul(weights, value).transpose(1, 2).reshape({batch, seq, width});
  }

  at::Tensor drop(const at::Tensor& x) const { return at::dropout(x, config_.dropout, is_training()); }

  BertConfig config_;
  Linear query_, key_, value_, proj_, up_, down_;
  torch::nn::LayerNorm norm1_, norm2_;
};

/// BERT's prediction of every token.
class TokenHead : public torch::nn::Module {
 public:
  explicit TokenHead(const BertConfig& config) : transform_(config.width, config.width), norm_(norm_options(config)) {
    register_module("transform", transform_);
    register_module("norm", norm_);
    bias_ = register_parameter("bias", torch::zeros({config.vocab}));
  }

  HeadInput forward(const at::Tensor& x, const at::Tensor& embedding) {
    return {norm_(at::gelu(transform_(x))), embedding, bias_};
  }

 private:
  torch::nn::Linear transform_;
  torch::nn::LayerNorm norm_;
  at::Tensor bias_;
};

class Bert : public Model {
 public:
  explicit Bert(const BertConfig& config)
      : config_(config),
        tokens_(torch::nn::EmbeddingOptions(config.vocab, config.width).padding_idx(config.padding)),
        positions_(torch::nn::EmbeddingOptions(config.seq, config.width)
                       .padding_idx(config.positions_after_padding ? config.padding : std::nullopt)),
        norm_(norm_options(config)) {
    register_module("tokens", tokens_);
    register_module("positions", positions_);
    if (config.types > 0) types_ = register_module("types", torch::nn::Embedding(config.types, config.width));
    register_module("norm", norm_);
    for (int64_t i = 0; i < config.layers; ++i) {
      layers_.push_back(register_module("layer" + std::to_string(i), std::make_shared<EncoderLayer>(config)));
      add_block_parameters(layers_.back()->parameters());
    }
    if (config.head == BertHead::kClassify) {
      pool_ = register_module("pool", torch::nn::Linear(config.width, config.width));
      classify_ = register_module("classify", torch::nn::Linear(config.width, config.classes));
    } else {
      predict_ = register_module("predict", std::make_shared<TokenHead>(config));
    }
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      if (parameter.value().dim() == 2) torch::nn::init::normal_(parameter.value(), 0.0, 0.02);
      if (parameter.key().ends_with("bias")) parameter.value().zero_();
    }
  }

  at::Tensor forward(at::Tensor input) override {
    if (const auto head = forward_to_head(input)) return at::linear(head->input, head->weight, head->bias);
    const auto first = encode(input).select(1, 0);
    const auto pooled = pool_(config_.drops_pooled_input ? drop_for_classifier(first) : first);
    return classify_(drop_for_classifier(config_.pools_by_relu ? at::relu(pooled) : at::tanh(pooled)));
  }

  std::optional<HeadInput> forward_to_head(at::Tensor input) override {
    if (predict_ == nullptr) return std::nullopt;
    return predict_->forward(encode(input), tokens_->weight);
  }

 private:
  /// What the layers make of (batch, 3, seq).
  at::Tensor encode(const at::Tensor& input) {
    const auto mask = input.select(1, 2);
    const auto tokens = input.select(1, 0);
    auto embedded = tokens_(tokens);
    if (config_.types > 0) embedded = embedded + types_(input.select(1, 1));
    auto x = drop(norm_(embedded + positions_(positions(tokens))));
    const auto bias = ((1 - mask.to(x.scalar_type())) * std::numeric_limits<float>::lowest()).unsqueeze(1).unsqueeze(1);
    for (const auto& layer : layers_) {
      x = run_block([layer, bias](const at::Tensor& h) { return layer->forward(h, bias); }, std::move(x));
    }
    return x;
  }

  /// Of every token, which row of `positions_` is its.
  at::Tensor positions(const at::Tensor& tokens) const {
    if (!config_.positions_after_padding) return at::arange(tokens.size(1), tokens.options());
    const auto real = tokens.ne(*config_.padding).to(at::kLong);
    return at::cumsum(real, 1) * real + *config_.padding;
  }

  at::Tensor drop(const at::Tensor& x) const { return at::dropout(x, config_.dropout, is_training()); }
  at::Tensor drop_for_classifier(const at::Tensor& x) const {
    return at::dropout(x, config_.classifier_dropout, is_training());
  }

  BertConfig config_;
  torch::nn::Embedding tokens_, positions_, types_{nullptr};
  torch::nn::LayerNorm norm_;
  std::vector<std::shared_ptr<EncoderLayer>> layers_;
  torch::nn::Linear pool_{nullptr}, classify_{nullptr};
  std::shared_ptr<TokenHead> predict_;
};

void check(const BertConfig& config) {
  for (const int64_t size :
       {config.layers, config.width, config.heads, config.hidden, config.seq, config.vocab, config.classes}) {
    if (size < 1) {
      throw Error(
          "[bert] layers, width, heads, hidden, seq, vocab and classes must each be 1 or more; give a larger "
          "one");
    }
  }
  if (config.types < 0 || (config.positions_after_padding && (!config.padding || *config.padding + 1 >= config.seq))) {
    throw Error("[bert] types is " + std::to_string(config.types) + ", seq " + std::to_string(config.seq) +
                "; give 0 types or more, and where positions begin after padding a padding below seq - 1");
  }
  if (config.padding && (*config.padding < 0 || *config.padding >= config.vocab)) {
    throw Error("[bert] padding is token " + std::to_string(*config.padding) + " of " + std::to_string(config.vocab) +
                "; give one that there is");
  }
  if (config.width % config.heads != 0) {
    throw Error("[bert] width " + std::to_string(config.width) + " is not a multiple of heads " +
                std::to_string(config.heads) + "; change one of them");
  }
  for (const double dropout : {config.dropout, config.attention_dropout, config.classifier_dropout}) {
    if (dropout >= 0 && dropout < 1) continue;
    throw Error("[bert] dropout is " + support::short_text(dropout) + "; give a number from 0 up to, not including, 1");
  }
}

}  // namespace

std::shared_ptr<Model> make_bert(const BertConfig& config) {
  check(config);
  return std::make_shared<Bert>(config);
}

int64_t parameter_count(const BertConfig& config) {
  const int64_t width = config.width, norm = 2 * width, square = width * width + width;
  const int64_t layer = 4 * square + 2 * width * config.hidden + config.hidden + width + 2 * norm;
  const int64_t head = config.head == BertHead::kClassify ? square + width * config.classes + config.classes
                                                          : square + norm + config.vocab;
  return (config.vocab + config.seq + config.types) * width + norm + config.layers * layer + head;
}

}  // namespace remat::zoo

#include "zoo/vit.h"

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "zoo/linear.h"

namespace remat::zoo {
namespace {

torch::nn::LayerNormOptions norm_options(int64_t width) { return torch::nn::LayerNormOptions({width}).eps(1e-12); }

class EncoderBlock : public torch::nn::Module {
 public:
  explicit EncoderBlock(const VitConfig& config)
      : heads_(config.heads),
        dropout_(config.dropout),
        norm1_(norm_options(config.width)),
        norm2_(norm_options(config.width)),
        query_(config.width, config.width),
        key_(config.width, config.width),
        value_(config.width, config.width),
        proj_(config.width, config.width),
        up_(config.width, config.hidden),
        down_(config.hidden, config.width) {
    register_module("norm1", norm1_);
    register_module("query", query_);
    register_module("key", key_);
    register_module("value", value_);
    register_module("proj", proj_);
    register_module("norm2", norm2_);
    register_module("up", up_);
    register_module("down", down_);
  }

  at::Tensor forward(at::Tensor x) {
    x = x + drop(proj_(attention(norm1_(x))));
    return x + drop(down_(at::gelu(up_(norm2_(x)))));
  }

 private:
  at::Tensor attention(const at::Tensor& x) {
    const auto batch = x.size(0), seq = x.size(1), width = x.size(2);
    const auto split = [&](const at::Tensor& t) {
      return t.view({batch, seq, heads_, width / heads_}).transpose(1, 2);
    };
    const auto mixed = at::scaled_dot_product_attention(split(query_(x)), split(key_(x)), split(value_(x)));
    return mixed.transpose(1, 2).reshape({batch, seq, width});
  }

  at::Tensor drop(const at::Tensor& x) const { return at::dropout(x, dropout_, is_training()); }

  int64_t heads_;
  double dropout_;
  torch::nn::LayerNorm norm1_, norm2_;
  Linear query_, key_, value_, proj_, up_, down_;
};

class Vit : public Model {
 public:
  explicit Vit(const VitConfig& config)
      : dropout_(config.dropout),
        patches_(torch::nn::Conv2dOptions(3, config.width, config.patch).stride(config.patch)),
        norm_(norm_options(config.width)),
        classify_(config.width, config.classes) {
    const int64_t side = config.image / config.patch;
    class_token_ = register_parameter("class_token", at::empty({1, 1, config.width}));
    positions_ = register_parameter("positions", at::empty({1, side * side + 1, config.width}));
    register_module("patches", patches_);
    for (int64_t i = 0; i < config.layers; ++i) {
      auto block = register_module("block" + std::to_string(i), std::make_shared<EncoderBlock>(config));
      add_block([block](at::Tensor x) { return block->forward(std::move(x)); }, block->parameters());
    }
    register_module("norm", norm_);
    register_module("classify", classify_);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      if (parameter.value().dim() > 1) torch::nn::init::normal_(parameter.value(), 0.0, 0.02);
      if (parameter.key().ends_with("bias")) parameter.value().zero_();
    }
  }

  at::Tensor forward(at::Tensor images) override {
    const auto patches = patches_(images).flatten(2).transpose(1, 2);
    const auto tokens = at::cat({class_token_.expand({images.size(0), -1, -1}), patches}, /*dim=*/1);
    const auto x = run_blocks(at::dropout(tokens + positions_, dropout_, is_training()));
    return classify_(norm_(x.select(1, 0)));  // each token is normalized alone, and only the first one is read
  }

 private:
  double dropout_;
  at::Tensor class_token_, positions_;
  torch::nn::Conv2d patches_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear classify_;
};

void check(const VitConfig& config) {
  for (const int64_t size :
       {config.image, config.patch, config.layers, config.width, config.heads, config.hidden, config.classes}) {
    if (size < 1) {
      throw Error(
          "[vit] image, patch, layers, width, heads, hidden and classes must each be 1 or more; give a larger "
          "one");
    }
  }
  if (config.image % config.patch != 0) {
    throw Error("[vit] image " + std::to_string(config.image) + " is not a multiple of patch " +
                std::to_string(config.patch) + "; change one of them");
  }
  if (config.width % config.heads != 0) {
    throw Error("[vit] width " + std::to_string(config.width) + " is not a multiple of heads " +
                std::to_string(config.heads) + "; change one of them");
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    throw Error("[vit] dropout is " + support::short_text(config.dropout) +
                "; give a number from 0 up to, not including, 1");
  }
}

}  // namespace

std::shared_ptr<Model> make_vit(const VitConfig& config) {
  check(config);
  return std::make_shared<Vit>(config);
}

int64_t parameter_count(const VitConfig& config) {
  const int64_t width = config.width, norm = 2 * width, square = width * width + width;
  const int64_t side = config.image / config.patch;
  const int64_t embedding = width + (side * side + 1) * width + 3 * config.patch * config.patch * width + width;
  const int64_t block = 4 * square + 2 * width * config.hidden + config.hidden + width + 2 * norm;
  return embedding + config.layers * block + norm + width * config.classes + config.classes;
}

}  // namespace remat::zoo

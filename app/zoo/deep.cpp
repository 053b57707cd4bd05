#include "zoo/deep.h"

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

torch::nn::LayerNormOptions norm_options(int64_t width) { return torch::nn::LayerNormOptions({width}); }

class ResidualBlock : public torch::nn::Module {
 public:
  explicit ResidualBlock(const DeepConfig& config)
      : norm_(norm_options(config.width)), up_(config.width, config.hidden), down_(config.hidden, config.width) {
    register_module("norm", norm_);
    register_module("up", up_);
    register_module("down", down_);
  }

  at::Tensor forward(const at::Tensor& x) { return x + down_(at::gelu(up_(norm_(x)))); }

 private:
  torch::nn::LayerNorm norm_;
  torch::nn::Linear up_, down_;
};

class Deep : public Model {
 public:
  explicit Deep(const DeepConfig& config) : norm_(norm_options(config.width)) {
    for (int64_t i = 0; i < config.layers; ++i) {
      auto block = std::make_shared<ResidualBlock>(config);
      register_module("block" + std::to_string(i), block);
      add_block([block](const at::Tensor& x) { return block->forward(x); });
    }
    register_module("norm", norm_);
  }

  at::Tensor forward(at::Tensor x) override { return norm_(run_blocks(std::move(x))); }

 private:
  torch::nn::LayerNorm norm_;
};

}  // namespace

std::shared_ptr<Model> make_deep(const DeepConfig& config) {
  if (config.layers < 1 || config.width < 1 || config.hidden < 1) {
    throw Error("[deep] layers, width and hidden must each be 1 or more; give a larger one");
  }
  return std::make_shared<Deep>(config);
}

}  // namespace remat::zoo

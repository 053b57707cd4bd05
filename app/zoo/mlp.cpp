#include "zoo/mlp.h"

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/linear.h"

namespace remat::zoo {
namespace {

class Mlp : public Model {
 public:
  explicit Mlp(const MlpConfig& config) {
    for (int64_t i = 0; i < config.layers; ++i) {
      Linear linear(config.width, config.width);
      register_module("linear" + std::to_string(i), linear);
      add_block([linear](const at::Tensor& x) mutable { return at::gelu(linear(x)); });
    }
  }

  at::Tensor forward(at::Tensor x) override { return run_blocks(std::move(x)); }
};

class WindowMlp : public Model {
 public:
  explicit WindowMlp(const WindowMlpConfig& config)
      : embedding_(config.vocab, config.embedding),
        input_(config.seq * config.embedding, config.width),
        hidden_(std::make_shared<Mlp>(MlpConfig{config.layers, config.width})),
        output_(config.width, config.vocab) {
    register_module("embedding", embedding_);
    register_module("input", input_);
    register_module("hidden", hidden_);
    register_module("output", output_);
    add_block([hidden = hidden_](at::Tensor x) { return hidden->forward(std::move(x)); }, hidden_->parameters());
  }

  at::Tensor forward(at::Tensor tokens) override {
    return output_(run_blocks(at::gelu(input_(embedding_(tokens).flatten(1)))));
  }

 private:
  torch::nn::Embedding embedding_;
  torch::nn::Linear input_;
  std::shared_ptr<Mlp> hidden_;
  torch::nn::Linear output_;
};

}  // namespace

std::shared_ptr<Model> make_mlp(const MlpConfig& config) {
  if (config.layers < 1 || config.width < 1) {
    throw Error("[mlp] layers and width must each be 1 or more; give a larger one");
  }
  return std::make_shared<Mlp>(config);
}

std::shared_ptr<Model> make_window_mlp(const WindowMlpConfig& config) {
  if (config.layers < 1 || config.width < 1 || config.seq < 1 || config.embedding < 1 || config.vocab < 1) {
    throw Error("[mlp] layers, width, seq, embedding and vocab must each be 1 or more; give a larger one");
  }
  return std::make_shared<WindowMlp>(config);
}

int64_t parameter_count(const WindowMlpConfig& config) {
  const auto linear = [](int64_t from, int64_t to) { return from * to + to; };
  return config.vocab * config.embedding + linear(config.seq * config.embedding, config.width) +
         config.layers * linear(config.width, config.width) + linear(config.width, config.vocab);
}

}  // namespace remat::zoo

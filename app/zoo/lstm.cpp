#include "zoo/lstm.h"

#include <torch/torch.h>

#include <remat/error.h>

#include <remat/support/number_text.h>

namespace remat::zoo {
namespace {

class RecurrentLayer : public torch::nn::Module {
 public:
  RecurrentLayer(int64_t width, double dropout) : dropout_(dropout), cell_(width, width) {
    register_module("cell", cell_);
  }

  /// (seq, batch, width) -> the same
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = at::zeros({x.size(1), x.size(2)}, x.options());
    auto memory = at::zeros_like(hidden);
    std::vector<at::Tensor> outputs;
    for (const auto& input : x.unbind()) {
      std::tie(hidden, memory) = cell_(input, std::make_tuple(hidden, memory));
      outputs.push_back(hidden);
    }
    return at::dropout(at::stack(outputs), dropout_, is_training());
  }

 private:
  double dropout_;
  torch::nn::LSTMCell cell_;
};

class Lstm : public Model {
 public:
  explicit Lstm(const LstmConfig& config)
      : dropout_(config.dropout), tokens_(config.vocab, config.width), output_(config.width, config.vocab) {
    register_module("tokens", tokens_);
    for (int64_t i = 0; i < config.layers; ++i) {
      auto layer = std::make_shared<RecurrentLayer>(config.width, config.dropout);
      register_module("layer" + std::to_string(i), layer);
      add_block([layer](const at::Tensor& x) { return layer->forward(x); });
    }
    register_module("output", output_);
  }

  at::Tensor forward(at::Tensor tokens) override {
    const auto embedded = at::dropout(tokens_(tokens.t()), dropout_, is_training());
    return output_(run_blocks(embedded).transpose(0, 1));
  }

 private:
  double dropout_;
  torch::nn::Embedding tokens_;
  torch::nn::Linear output_;
};

}  // namespace

std::shared_ptr<Model> make_lstm(const LstmConfig& config) {
  if (config.layers < 1 || config.width < 1 || config.vocab < 1) {
    throw Error("[lstm] layers, width and vocab must each be 1 or more; give a larger one");
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    throw Error("[lstm] dropout is " + support::short_text(config.dropout) +
                "; give a number from 0 up to, not including, 1");
  }
  return std::make_shared<Lstm>(config);
}

}  // namespace remat::zoo

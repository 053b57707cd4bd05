// tests/session/block_net.h -- a model whose modules have paths: "embedding", "blocks.0.norm", "blocks.0.up", ...
#pragma once

#include <torch/torch.h>

namespace remat::test {

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(torch::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  torch::nn::Linear up{8, 16}, down{16, 8};
};
TORCH_MODULE(Block);

/// The embedding is the head, too.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("embedding", embedding);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(Block());
  }
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = embedding(tokens);
    for (const auto& block : *blocks) x = block->as<BlockImpl>()->forward(x);
    return torch::log_softmax(torch::nn::functional::linear(x, embedding->weight), -1);
  }
  torch::nn::Embedding embedding{32, 8};
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Net);

}  // namespace remat::test

// zoo/model.h -- what every model of the zoo is: a torch module, one tensor in, one tensor out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/module.h>

namespace remat::zoo {

/// What the last layer of a model is given, where it is linear: its results are at::linear(input, weight, bias).
struct HeadInput {
  at::Tensor input;   ///< (..., width)
  at::Tensor weight;  ///< (classes, width)
  at::Tensor bias;    ///< (classes); undefined: none
};

class Model : public torch::nn::Module {
 public:
  using Block = std::function<at::Tensor(at::Tensor)>;
  /// Runs one block on an input: what a benchmark puts around every block of a model.
  using BlockRunner = std::function<at::Tensor(const Block& block, at::Tensor x)>;

  virtual at::Tensor forward(at::Tensor input) = 0;

  /// forward() without its last layer, for losses that never hold all logits. Nothing, and nothing has run, where
  /// forward() is more than that layer on it: of models that are not of language, and where logits are capped.
  virtual std::optional<HeadInput> forward_to_head(at::Tensor /*input*/) { return std::nullopt; }

  /// From now on the model's repeated blocks run through `runner`, as in
  /// `[](auto& block, at::Tensor x) { return remat::checkpoint(block, x); }`. Without one they are simply called.
  void set_block_runner(BlockRunner runner) { runner_ = std::move(runner); }

  /// Of each block, in the order in which they run; empty for models that do not say.
  const std::vector<std::vector<at::Tensor>>& block_parameters() const { return block_parameters_; }

  /// Scalars of all parameters.
  int64_t parameter_count() const;
  /// Of those that are trained: fewer where some are frozen (zoo/lora.h).
  int64_t trained_parameter_count() const;

 protected:
  /// `x` through all blocks, in the order they were added.
  at::Tensor run_blocks(at::Tensor x) const;
  /// `x` through one block, for models whose blocks do not simply follow each other. A runner may keep a copy of the
  /// block, so what it captures it must own.
  at::Tensor run_block(const Block& block, at::Tensor x) const;
  void add_block(Block block, std::vector<at::Tensor> parameters = {}) {
    blocks_.push_back(std::move(block));
    add_block_parameters(std::move(parameters));
  }
  /// Of a block that goes through run_block(), in the order in which blocks run.
  void add_block_parameters(std::vector<at::Tensor> parameters) { block_parameters_.push_back(std::move(parameters)); }

 private:
  std::vector<Block> blocks_;
  std::vector<std::vector<at::Tensor>> block_parameters_;
  BlockRunner runner_;
};

}  // namespace remat::zoo

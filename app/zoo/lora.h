// zoo/lora.h -- low-rank adaptation (Hu et al. 2021): a model's weights are frozen, and factors beside some of its
// linear layers are trained in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zoo/linear.h"
#include "zoo/model.h"

namespace remat::zoo {

struct LoraConfig {
  int64_t rank = 8;
  double alpha = 8;  ///< the factors' product counts alpha / rank times
  /// Which linear layers get factors: their names, or ends of them after a dot; '*' stands for any characters but dots.
  /// Empty: those of attention's queries and values, which in a GPT are one layer with its keys.
  std::vector<std::string> layers = {};
};

/// What a layer of the zoo, "block3.qkv", is called in patterns and messages.
using NameOf = std::function<std::string(const std::string& ours)>;

/// Freezes the parameters of `model`, all but those of a classifier's last layer and those named in `trained`, and adds
/// factors to the linear layers of its blocks that fit. The model computes what it did before. Draws from the default
/// generator. Throws Error for a pattern that no layer fits, and a rank below 1 or above a layer's width; the model is
/// unchanged then. Blocks that hold their parameters in parts (ShardedParameters) know nothing of factors.
void add_lora(
    Model& model, const LoraConfig& config, const std::vector<std::string>& trained = {},
    const NameOf& name_of = [](const std::string& ours) { return ours; });

/// The layers that have factors, by their names in the zoo.
std::vector<std::pair<std::string, std::shared_ptr<LinearImpl>>> lora_layers(const Model& model);

/// By name, those of a model without factors that computes the same: of layers with factors the merged weights.
std::vector<std::pair<std::string, at::Tensor>> merged_parameters(const Model& model);

}  // namespace remat::zoo

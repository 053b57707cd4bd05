// zoo/efficientnet.h -- EfficientNet (Tan and Le 2019): inverted bottlenecks with squeeze-and-excitation, in many
// sizes.
#pragma once

#include <memory>
#include <vector>

#include "zoo/model.h"

namespace remat::zoo {

/// The default is EfficientNet-B0.
struct EfficientNetConfig {
  double width = 1.0;    ///< times the channels of B0, rounded to a multiple of 8; above 0, at most 16
  double depth = 1.0;    ///< times the blocks of B0 in each stage, rounded up; above 0, at most 16
  double dropout = 0.2;  ///< before the classifier; 0 <= dropout < 1
  /// Stochastic depth (Huang et al. 2016): the probability that a sample skips a block's residual branch in training, 0
  /// for the first block and rising linearly towards this number; 0 <= stochastic_depth < 1.
  double stochastic_depth = 0.2;
  /// Drops single elements of the residual branch in place of it for single samples, as transformers does.
  bool drop_elements = false;
  double norm_epsilon = 1e-3;
  double norm_momentum = 0.1;  ///< of running statistics; those behind widening convolutions always take 0.1
  /// Numbers of blocks whose depthwise convolution of stride 2 pads all sides alike; the others, and the stem, pad one
  /// pixel less at the top and the left, as TensorFlow does for an even number of pixels.
  std::vector<int64_t> square_padding = {};
  int64_t classes = 1000;
};

/// B0 to B4, which were published for images of 224, 240, 260, 300 and 380 pixels. Throws remat::Error for another
/// number.
EfficientNetConfig efficientnet_config(int64_t number);

/// Blocks of all stages. Throws remat::Error for a config that cannot be, as make_efficientnet() does.
int64_t block_count(const EfficientNetConfig& config);

/// Channels behind the last convolution, which the classifier sees.
int64_t head_channels(const EfficientNetConfig& config);

/// Scalars of all parameters, without building the model. Throws remat::Error for a config that cannot be.
int64_t parameter_count(const EfficientNetConfig& config);

/// forward: (batch, 3, height, width) images -> (batch, classes) logits. Throws remat::Error for a config that cannot
/// be.
std::shared_ptr<Model> make_efficientnet(const EfficientNetConfig& config);

}  // namespace remat::zoo

// zoo/resnet.h -- residual networks with BatchNorm and in-place ReLU (He et al. 2016), for ImageNet and for CIFAR.
#pragma once

#include <memory>
#include <vector>

#include "zoo/model.h"

namespace remat::zoo {

struct ResNetConfig {
  std::vector<int64_t> depths = {3, 4, 6, 3};  ///< blocks in each stage; the default is ResNet-50
  int64_t width = 64;                          ///< channels after the stem; each further stage has twice as many
  int64_t classes = 1000;
  /// Blocks of a 1 x 1, a 3 x 3 and a 1 x 1 convolution, with four times the stage's channels; otherwise of two 3 x 3
  /// convolutions.
  bool bottleneck = true;
  /// For images of 32 x 32 pixels: a stem of one 3 x 3 convolution that keeps the size, and shortcuts without
  /// parameters (option A: zeros stand for the channels that are added).
  bool small_images = false;
};

/// The network for ImageNet of 18, 34, 50, 101 or 152 layers. Throws remat::Error for another number.
ResNetConfig resnet_config(int64_t layers);

/// The network for CIFAR (section 4.2 of the paper) of 6 n + 2 layers, as 20, 110 or 1202. Throws remat::Error for
/// another number.
ResNetConfig cifar_resnet_config(int64_t layers, int64_t classes = 10);

/// forward: (batch, 3, height, width) images -> (batch, classes) logits. Throws remat::Error for a config that cannot
/// be.
std::shared_ptr<Model> make_resnet(const ResNetConfig& config);

}  // namespace remat::zoo

// zoo/resnet.h -- residual network of bottleneck blocks with BatchNorm and in-place ReLU (He et al. 2016).
#pragma once

#include <memory>
#include <vector>

#include "zoo/model.h"

namespace remat::zoo {

struct ResNetConfig {
  std::vector<int64_t> depths = {3, 4, 6, 3};  ///< blocks in each stage; the default is ResNet-50
  int64_t width = 64;                          ///< channels after the stem; each further stage has twice as many
  int64_t classes = 1000;
};

/// forward: (batch, 3, height, width) images -> (batch, classes) logits. Throws remat::Error for a config that cannot
/// be.
std::shared_ptr<Model> make_resnet(const ResNetConfig& config);

}  // namespace remat::zoo

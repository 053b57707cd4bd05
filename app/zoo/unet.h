// zoo/unet.h -- U-Net (Ronneberger et al. 2015) that labels each pixel, with padded convolutions and GroupNorm.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

struct UNetConfig {
  int64_t levels = 4;  ///< times that the image is halved on the way down
  int64_t width = 32;  ///< channels at the top, a multiple of groups; each level further down has twice as many
  int64_t groups = 8;  ///< of channels that are normalized together
  int64_t classes = 8;
};

/// forward: (batch, 3, height, width) images -> (batch, classes, height, width) logits; height and width are multiples
/// of 2^levels. Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_unet(const UNetConfig& config);

}  // namespace remat::zoo

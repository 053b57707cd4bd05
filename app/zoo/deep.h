// zoo/deep.h -- a very deep network of small pre-norm residual blocks: LayerNorm, Linear, GELU, Linear.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

struct DeepConfig {
  int64_t layers = 100;
  int64_t width = 256;
  int64_t hidden = 512;  ///< between the two products of a block
};

/// forward: (batch, width) -> (batch, width). Throws remat::Error for a config that cannot be.
std::shared_ptr<Model> make_deep(const DeepConfig& config);

}  // namespace remat::zoo

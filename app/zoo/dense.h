// zoo/dense.h -- a few dense layers, small enough to count their bytes by hand.
#pragma once

#include <memory>
#include <vector>

#include "zoo/model.h"

namespace remat::zoo {

struct DenseConfig {
  int64_t features = 8;                   ///< of the input
  std::vector<int64_t> units = {16, 32};  ///< of each layer
};

/// forward: (batch, features) -> (batch, units.back()); a layer is Linear and ReLU. Throws remat::Error for a config
/// that cannot be.
std::shared_ptr<Model> make_dense(const DenseConfig& config);

}  // namespace remat::zoo

#include "zoo/dense.h"

#include <algorithm>

#include <torch/torch.h>

#include <remat/error.h>

#include "zoo/linear.h"

namespace remat::zoo {
namespace {

class Dense : public Model {
 public:
  explicit Dense(const DenseConfig& config) {
    int64_t features = config.features;
    for (const int64_t units : config.units) {
      Linear linear(features, units);
      register_module("linear" + std::to_string(children().size()), linear);
      add_block([linear](const at::Tensor& x) mutable { return at::relu(linear(x)); });
      features = units;
    }
  }

  at::Tensor forward(at::Tensor x) override { return run_blocks(std::move(x)); }
};

}  // namespace

std::shared_ptr<Model> make_dense(const DenseConfig& config) {
  const bool small = std::ranges::any_of(config.units, [](int64_t units) { return units < 1; });
  if (config.features < 1 || config.units.empty() || small) {
    throw Error("[dense] features and the units of each of at least one layer must be 1 or more; give a larger one");
  }
  return std::make_shared<Dense>(config);
}

}  // namespace remat::zoo

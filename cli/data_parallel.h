// cli/data_parallel.h -- one of several processes that train a model together, each on its rows of every batch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <remat/ranks.h>

#include "cli/rank_place.h"
#include "zoo/model.h"

namespace remat::cli {

class DataParallel {
 public:
  /// Connects with the others. `shard`: each holds its part of parameters and gradients (remat::ShardedParameters),
  /// else all of them, and averages the gradients after each backward pass. `model` must outlive it. Throws Error where
  /// remat was built without c10d and Gloo.
  static std::unique_ptr<DataParallel> join(zoo::Model& model, const RankPlace& place, bool shard);
  virtual ~DataParallel() = default;

  /// What the optimizer updates, by name: the model's parameters that are not frozen, or shards.
  virtual std::vector<std::pair<std::string, at::Tensor>> leaves() const = 0;
  /// forward(), a pass through the model, and what must be around it.
  virtual at::Tensor run(const std::function<at::Tensor()>& forward) = 0;
  /// A backward pass has ended: the leaves' gradients are the means over all processes afterwards.
  virtual void average_gradients() = 0;
  /// A step has failed: what it left is put in order.
  virtual void reset() = 0;
  /// The mean of what all processes give.
  virtual float mean(float value) = 0;
  /// For the session.
  virtual Ranks ranks() const = 0;
};

}  // namespace remat::cli

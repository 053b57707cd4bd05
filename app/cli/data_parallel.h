// cli/data_parallel.h -- one of several processes that train a model together, each on its rows of every batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cli/rank_group.h"
#include "cli/training_state.h"
#include "zoo/model.h"

namespace remat::cli {

class DataParallel {
 public:
  /// `shard`: each rank holds its part of parameters and gradients (remat::ShardedParameters), else all of them, and
  /// averages the gradients after each backward pass. Rank 0's parameters count. `model` and `ranks`, of join_ranks(),
  /// must outlive it.
  static std::unique_ptr<DataParallel> make(zoo::Model& model, RankGroup& ranks, bool shard);
  virtual ~DataParallel() = default;

  /// What the optimizer updates, by name: the model's parameters that are not frozen, or shards.
  virtual NamedTensors leaves() const = 0;
  /// forward(), a pass through the model, and what must be around it.
  virtual at::Tensor run(const std::function<at::Tensor()>& forward) = 0;
  /// A backward pass has ended: the leaves' gradients are the means over all processes afterwards.
  virtual void average_gradients() = 0;
  /// The same for one leaf, whose gradient is complete while backward runs.
  virtual void average_gradient(const at::Tensor& leaf) = 0;
  /// Of the averaged gradients: where the norm of all together is more than `norm`, they are scaled to it.
  virtual void clip_gradients(double norm) = 0;
  /// A step has failed: what it left is put in order.
  virtual void reset() = 0;
  /// The model's buffers are those of the first process afterwards.
  virtual void broadcast_buffers() = 0;
  /// Calls `work` while the model's parameters are there as a whole.
  virtual void with_whole_model(const std::function<void()>& work) = 0;

  /// What this process must save beside what others save, written to `write`; it is read again by load_own().
  virtual void save_own(const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write) = 0;
  /// Continues from what the processes have saved, `parts[rank]`; returns the number of steps.
  virtual int64_t load_own(torch::optim::Optimizer& optimizer, const std::vector<StatePart>& parts) = 0;
};

}  // namespace remat::cli

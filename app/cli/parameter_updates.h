// cli/parameter_updates.h -- AdamW's updates of what is trained: after backward or in it, with its state in memory or
// in a file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/adamw.h>

#include <remat/optimizer_in_backward.h>
#include <remat/paged_gradients.h>
#include <remat/paged_optimizer.h>

#include "cli/settings.h"

namespace remat::cli {

class ParameterUpdates {
 public:
  /// Of `parameters`, as `settings` say. Throws Error where the state cannot be in the directory of `page_optimizer`,
  /// or has no room there, and so for `page_gradients`.
  ParameterUpdates(std::vector<at::Tensor> parameters, const TrainSettings& settings);
  ~ParameterUpdates();
  ParameterUpdates(const ParameterUpdates&) = delete;
  ParameterUpdates& operator=(const ParameterUpdates&) = delete;

  /// From now on every `accumulate`-th backward pass updates, after `before_update` of each parameter.
  void begin_in_backward(int64_t accumulate, std::function<void(const at::Tensor& parameter)> before_update);
  bool are_in_backward() const { return in_backward_.has_value(); }

  void set_learning_rate(double rate);
  /// Scales gradients down to `norm`, of all together.
  void clip(double norm);
  /// Updates those that have gradients, and frees these.
  void step();
  /// A backward pass has failed: frees gradients, so that the step can begin again unless is_between_steps().
  void give_up_step();
  /// Has a step failed when some parameters were updated, and others were not?
  bool is_between_steps() const;

  torch::optim::AdamW& optimizer() { return optimizer_; }
  /// What went to the file and came back; nothing where there is none.
  std::optional<PagingReport> paging() const;
  std::optional<PagingReport> gradient_paging() const;  ///< the same of gradients

 private:
  torch::optim::AdamW optimizer_;
  std::optional<PagedOptimizer> paged_;
  std::optional<PagedGradients> gradients_;
  std::optional<OptimizerInBackward> in_backward_;
  const bool is_plain_;       ///< the optimizer's own step
  bool is_updating_ = false;  ///< stays where an update throws
};

}  // namespace remat::cli

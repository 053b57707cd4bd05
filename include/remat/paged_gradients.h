// remat/paged_gradients.h -- gradients that are in a file from when backward has completed them until the optimizer's
// step.
//
//   torch::optim::AdamW optimizer(model->parameters());
//   remat::PagedGradients gradients(optimizer, "/scratch");
//   for (const auto& batches : steps) {
//     for (const auto& batch : batches) loss_of(batch).backward();  // passes add up
//     gradients.clip_norm(1.0);
//     gradients.step();                                             // in place of optimizer.step(), and zero_grad()
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <remat/state_pager.h>

namespace torch::optim {
class Optimizer;
}

namespace remat {

/// What needs all gradients, such as clipping by the norm of all, or several passes that add up, rules out
/// OptimizerInBackward, which frees each at once. Here each waits in a file: three at most are in memory, and those
/// below 64 KiB. Gradients, parameters and state have the bits of gradients in memory.
///
/// Meanwhile grad() is undefined for those in the file. Its name is nobody's, and it is gone when the process ends. A
/// write that fails is a warning: that gradient stays in memory. A backward pass that fails leaves gradients of a part
/// of it: call zero(), and begin the step again. With a PagedOptimizer of the same optimizer its state is in a file,
/// too. Not with OptimizerInBackward, create_graph, or processes that average gradients. Not thread-safe.
class PagedGradients {
 public:
  /// `optimizer`, which must outlive this: SGD, Adam, AdamW, RMSprop or Adagrad, whose parameters are on the CPU.
  /// Parameters that require no gradient yet are left alone. Throws Error for another optimizer, for a parameter that
  /// is in its groups twice or has a hook that runs after its gradient is complete, for a limit below 4096 bytes, and
  /// where no file can be made.
  PagedGradients(torch::optim::Optimizer& optimizer, const std::string& directory,
                 int64_t limit_bytes = StatePager::kNoLimit);
  /// Gradients that are in the file are lost.
  ~PagedGradients();
  PagedGradients(const PagedGradients&) = delete;
  PagedGradients& operator=(const PagedGradients&) = delete;

  /// As torch::nn::utils::clip_grad_norm_() of the optimizer's parameters, in its groups' order, with the norm of order
  /// 2. Reads nothing: norms are taken before gradients are written, and the factor is multiplied in when they are read
  /// (before a second clipping of one gradient, it is). Returns the norm of all together before.
  double clip_norm(double max_norm);
  /// As `optimizer.step()`, by step_in_parts() or its PagedOptimizer; frees each gradient when it is used. Throws Error
  /// where one can't be read: parameters before have been updated, so that training goes on from a checkpoint.
  void step();
  /// Frees all gradients. The optimizer's own zero_grad() does not reach those in the file: whoever leaves a step out
  /// calls this.
  void zero();

  /// Bytes and seconds so far.
  PagingReport report() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace remat

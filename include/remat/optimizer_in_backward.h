// remat/optimizer_in_backward.h -- updates of parameters while backward runs, so that their gradients are never all
// alive.
//
//   torch::optim::AdamW optimizer(model->parameters());
//   remat::OptimizerInBackward updates(optimizer);
//   for (...) {
//     auto step = session.step();
//     loss_of(model->forward(x)).backward();  // no optimizer.step(), no zero_grad()
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace remat {

/// While it lives, backward updates each of the optimizer's parameters as soon as its gradient is complete, and frees
/// the gradient at once. Parameters and the optimizer's state have the bits that they would have after backward(),
/// step() and zero_grad(): step() finds no gradients any more. Learning rates are those of the parameter groups when
/// backward runs.
///
/// Every backward pass updates, also where a loop would have thrown its gradients away, or added those of a second pass
/// to them: freeze the parameters that a pass is not to train, and say how many passes a step has. What runs again in
/// backward must not read weights without autograd, since they may have been updated.
///
/// Nobody sees all gradients: clip_grad_norm_() after backward has nothing to clip. Averages over several processes are
/// to be made before each update, not after backward: see `before_update`. Shards of ShardedParameters are averaged by
/// then.
class OptimizerInBackward {
 public:
  /// `optimizer`, which must outlive this: SGD, Adam, AdamW, RMSprop or Adagrad, whose updates of a parameter depend on
  /// its own gradient and state alone. Each parameter has the options of the group that it is in when its update comes;
  /// one that is in no group any more is left alone. Parameters that are frozen now and trained later are updated at
  /// the end of backward. `accumulate`: backward passes per step; gradients add up, and the last of them updates.
  /// Throws Error for another optimizer, for a parameter that is in the groups twice, and for parameters that have a
  /// hook of this kind. `before_update`: called with each parameter, whose grad() is complete, before its update; where
  /// it averages over processes, gradients must be complete in the same order in all of them.
  ///
  /// Backward throws Error with create_graph, where a backward pass inside of another one completes a gradient, and
  /// after a backward pass that failed when some parameters had been updated: see reset().
  explicit OptimizerInBackward(torch::optim::Optimizer& optimizer, int64_t accumulate = 1,
                               std::function<void(const at::Tensor& parameter)> before_update = nullptr);
  OptimizerInBackward(OptimizerInBackward&&) noexcept;
  OptimizerInBackward& operator=(OptimizerInBackward&&) noexcept;
  /// From now on step() updates again. Between steps.
  ~OptimizerInBackward();

  /// Has a backward pass failed when some parameters had been updated, and others had not?
  bool is_between_steps() const;
  /// The next backward pass is the first of a step. To be called where a step ends after fewer passes, by step() or
  /// with its gradients cleared, and after a pass that failed. Where is_between_steps(), load model and optimizer from
  /// a checkpoint before. Both throw Error where this one was moved from.
  void reset();

 private:
  struct Impl;
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

/// For bindings of other languages: while it lives, this thread updates a parameter in the middle of backward. What
/// comes meanwhile and stays is the optimizer's state, which is alive before later steps begin: plans count it so.
class ParameterUpdate {
 public:
  ParameterUpdate();
  ~ParameterUpdate();
  ParameterUpdate(const ParameterUpdate&) = delete;
  ParameterUpdate& operator=(const ParameterUpdate&) = delete;

  /// Does this thread run a backward pass inside of another one? There gradients may be complete more than once.
  static bool is_in_nested_backward();
};

}  // namespace remat

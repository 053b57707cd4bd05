// remat/paged_optimizer.h -- optimizers whose state is in a file, and comes back for one parameter at a time.
//
//   torch::optim::AdamW optimizer(model->parameters());
//   remat::PagedOptimizer paged(optimizer, "/scratch");
//   for (...) {
//     loss_of(model->forward(x)).backward();
//     paged.step();  // not optimizer.step()
//     optimizer.zero_grad();
//   }
//   paged.with_state([&] { torch::save(optimizer, "optimizer.pt"); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include <remat/state_pager.h>

namespace torch::optim {
class Optimizer;
}

namespace remat {

/// While it lives, the optimizer's state is in a file of a directory, and step() reads it for one parameter at a time:
/// while that is updated, the state of the next one is read, and that of the last one written. Parameters and state
/// have the bits that they would have without. Parameters of more than 2,097,152 elements are updated in parts, so that
/// no more than 51 MB of AdamW's state are in memory at once. Tensors below 64 KiB stay in memory.
///
/// In the optimizer's own state(), tensors that are in the file are undefined: a step() of its own would throw. The
/// file has no name: what is to outlive the process is saved in with_state(). A write that fails is a warning: that
/// state stays in memory. With OptimizerInBackward of the same optimizer, made before or after, backward updates, and
/// calls nothing of this. Not thread-safe.
class PagedOptimizer {
 public:
  static constexpr size_t kSmallestBytes = 64 << 10;  ///< of a state tensor that goes to the file

  /// `optimizer`, which must outlive this: SGD, Adam, AdamW, RMSprop or Adagrad, with parameters on the CPU. Writes
  /// what state there is. Throws Error for another optimizer, for one that has a PagedOptimizer, for a limit below 4096
  /// bytes, and where no file can be made in `directory`.
  PagedOptimizer(torch::optim::Optimizer& optimizer, const std::string& directory,
                 int64_t limit_bytes = StatePager::kNoLimit);
  /// Reads the whole state back: the optimizer is what it was. What can't be read is lost, with a warning.
  ~PagedOptimizer();
  PagedOptimizer(const PagedOptimizer&) = delete;
  PagedOptimizer& operator=(const PagedOptimizer&) = delete;

  /// As the optimizer's own, which also calls `closure`, once. Throws Error where a parameter's state can't be read, or
  /// is not the bytes that were written: those before have been updated, so that training goes on from a checkpoint.
  at::Tensor step(const std::function<at::Tensor()>& closure = nullptr);

  /// Calls `function` with the whole state in memory, to save it, to load it or to change it, then writes it again.
  void with_state(const std::function<void()>& function);

  /// Where the file is.
  const std::string& directory() const;
  /// Bytes and seconds so far.
  PagingReport report() const;

  /// That of `optimizer`; null where there is none.
  static PagedOptimizer* of(const torch::optim::Optimizer& optimizer);
  /// Updates a parameter, of the group at `group`, from its gradient, as step() does for each; end_step() comes after
  /// the last.
  void update(const at::Tensor& parameter, size_t group);
  void end_step();  ///< returns when all state is written

 private:
  struct Impl;
  void leave() noexcept;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace remat

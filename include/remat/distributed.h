// remat/distributed.h -- training on several processes by c10d, LibTorch's own process groups. Component:
// remat::distributed, where LibTorch was built with c10d.
//
//   auto group = ...;                                           // a c10d::ProcessGroup of LibTorch, Gloo's for example
//   remat::Session session({.budget = "2GiB", .ranks = remat::ranks_of(another_group)});
//   std::vector<remat::ShardedParameters> blocks;
//   for (auto& block : model->blocks) blocks.emplace_back(block->parameters(), group);
//   remat::ShardedParameters rest(..., group);                  // what no block has: embeddings, the head
//   torch::optim::AdamW optimizer(...);                         // of all shard()s
//   for (...) {
//     auto step = session.step();
//     auto loss = rest.call([&](at::Tensor x) {                 // in the model: x = blocks[i].call(block_forward, x)
//       return loss_of(model->forward(x), y);
//     }, x);
//     loss.backward();                                          // gradients of the shards: means over the processes
//     step.end();
//     optimizer.step();
//     optimizer.zero_grad();
//   }
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <remat/ranks.h>

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace remat {

/// For SessionOptions::ranks, by all-reductions over `group`: one that nothing else uses, since the model's is in the
/// middle of a collective when the ranks agree. Tensors of its backend must be on the CPU.
Ranks ranks_of(c10::intrusive_ptr<c10d::ProcessGroup> group);

/// Waits for `work`, and until the process group's own thread lets go of it: up to then that holds the collective's
/// tensors, whose bytes would count in what comes next. A busy machine may take milliseconds for it; where something
/// else holds the work on purpose, this ends after a tenth of a second all the same.
void finish(const c10::intrusive_ptr<c10d::Work>& work);

/// Parameters of a part of a model, a block for instance, that are held in equal shards, one by each process of a
/// group. The whole is gathered while that part's forward and backward pass run, and freed after each; gradients are
/// averaged over the processes and stay in shards. (Rajbhandari et al. 2020, ZeRO, stage 3; as PyTorch's fully_shard,
/// which LibTorch does not have.) What a session drops in between is recomputed where the parameters are there, without
/// one gather more.
///
/// To be made and used by all processes of the group in the same order, on one thread. Memory counts where a session or
/// memory::start_accounting() came before the parameters.
class ShardedParameters {
 public:
  /// `parameters`: leaves of one floating type, on the CPU, contiguous, each in a storage of its own, which all need
  /// gradients, or are all frozen: of a part that is trained in part make two, and call one inside of the other. From
  /// now on their storages are empty but during call() and after gather(): they cannot be read, and torch::save() would
  /// write nothing. Their grad() is not there after backward. Rank 0's contents count. Throws Error for other tensors,
  /// and for none.
  ShardedParameters(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group);
  ShardedParameters(ShardedParameters&&) noexcept;
  ShardedParameters& operator=(ShardedParameters&&) noexcept;
  ~ShardedParameters();

  /// The leaf for the optimizer, of shape (n), where n is the number of scalars, divided by that of the processes and
  /// rounded up; it needs a gradient where the parameters did. The last ones may be padding, whose gradients are zero.
  /// After a backward pass its grad() has the mean over the processes of what all backward passes since it was cleared
  /// gave: zeros, where none reached these parameters. In a step that calls them several times it is complete when
  /// backward ends.
  const at::Tensor& shard() const;

  /// forward(x), with the parameters there. `until_backward`: they are not freed between the passes, for the part that
  /// ends last and is needed first. One result; it, and x where it needs a gradient, are where backward's beginning
  /// and end are seen. Calls of different ShardedParameters may be inside of each other. Throws Error for a call inside
  /// of one of the same, for a result that is a view of a parameter, where parameters were frozen or unfrozen since,
  /// and after a backward pass that failed, before free(); backward throws it with create_graph.
  at::Tensor call(const std::function<at::Tensor(at::Tensor)>& forward, at::Tensor x, bool until_backward = false);

  /// Makes the parameters whole, to save them or to run without call(), until free(): of what is written to them
  /// meanwhile nothing stays. After a step that failed, free() puts in order what was left in the middle: gradients of
  /// the whole parameters are dropped, those of shards stay. Like shard() and call(), both throw Error where these were
  /// moved from.
  void gather();
  /// Frees the whole parameters, which gather() made, or a step that failed left behind.
  void free();

 private:
  struct Impl;
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace remat

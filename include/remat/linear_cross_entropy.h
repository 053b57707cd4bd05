// remat/linear_cross_entropy.h -- the head of a model with many classes, of which the logits are never whole.
//
//   // hidden: (tokens, width), weight: (classes, width), targets: (tokens)
//   auto loss = remat::linear_cross_entropy(hidden, head->weight, targets);
//   loss.backward();
//
// The same bits as at::cross_entropy_loss(at::linear(...), ...): loss, gradients and all. See remat/tiles.h.
#pragma once

#include <cstdint>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <remat/tiles.h>

namespace remat {

/// Of linear_cross_entropy(): what at::linear() and at::cross_entropy_loss() take beside their tensors.
struct LinearCrossEntropyOptions {
  /// Of the linear layer, (classes). Undefined: none.
  at::Tensor linear_bias;
  /// A factor for the loss of each class, (classes). Undefined: 1.
  at::Tensor weight;
  at::Reduction::Reduction reduction = at::Reduction::Mean;  ///< of the losses of tokens
  /// Tokens with this target count for nothing.
  int64_t ignore_index = -100;
  /// In [0, 1]: how much of the target is spread over all classes.
  double label_smoothing = 0;
  /// The trial of new shapes compares the tensors as a whole. Otherwise it compares large products one by one, in little
  /// memory: gradients whole, and some rows of the logits. See docs/tiles.md.
  bool whole_trial = false;
};

/// What at::cross_entropy_loss(at::linear(input, linear_weight, linear_bias), target, weight, reduction, ignore_index,
/// label_smoothing) gives, autocast included. In tiles where input is (tokens, width), target is class indices
/// (tokens), tensors are on the CPU and a trial has shown that tiles give the same bits; otherwise by these two
/// operators, with their errors: of targets that are probabilities, of (width) and of more dimensions, too.
///
/// In tiles, forward and backward together compute four products in place of three (five where the choice has columns),
/// and hold at most two to three tiles of logits at a time. Throws c10::IndexError for a target that is no class;
/// backward throws Error with create_graph, since nothing differentiates the tiles' gradients. Thread-safe.
at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& linear_weight, const at::Tensor& target,
                                const LinearCrossEntropyOptions& options = {});

}  // namespace remat

// remat/tiled_head.h -- the parts of linear_cross_entropy() one by one, below autograd: for bindings in which autograd
// has a graph of its own of the head and its loss, and only the numbers are to come from tiles. See remat/tiles.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <remat/tiles.h>

namespace remat::extension {

/// What a head's products are of, and the gradients of these, which are undefined where not asked for.
struct HeadTensors {
  at::Tensor input;   ///< (tokens, width)
  at::Tensor weight;  ///< (classes, width)
  at::Tensor bias;    ///< (classes); undefined: none
};

/// Which gradients of HeadTensors will be asked for.
struct NeededGradients {
  bool input = false;   ///< of the input
  bool weight = false;  ///< of the weight
  bool bias = false;    ///< of the bias
};

/// The log-probabilities of some targets, of logits that are never whole. Thread-safe.
class TiledHead {
 public:
  /// Of log_softmax(linear(input, weight, bias).to(loss_type), 1), `classes` names one column for each token (tokens,
  /// int64). Nothing where tiles are not known to have the bits of these operators; last_tile_choice() says why, and
  /// otherwise which tiles were taken.
  static std::optional<TiledHead> make(const HeadTensors& head, const at::Tensor& classes, at::ScalarType loss_type,
                                       const NeededGradients& needs);

  /// (tokens), of the loss_type.
  const at::Tensor& log_probabilities() const;
  /// Which tiles were taken, and why.
  const TileChoice& choice() const;
  /// `of_log_probabilities`: their gradients, (tokens). Throws Error where threads or settings of PyTorch's libraries
  /// have changed since make(), and where somebody has written to a tensor of the head.
  HeadTensors gradients(const at::Tensor& of_log_probabilities) const;

 private:
  struct Impl;
  explicit TiledHead(std::shared_ptr<const Impl> impl);

  std::shared_ptr<const Impl> impl_;
};

/// What the bits of a product depend on, beside its numbers: threads, and settings of PyTorch's libraries. Where two
/// calls give the same, a product that is computed late has the bits that it would have had.
std::vector<int64_t> product_circumstances();

/// A dispatch mode is entered on this thread that promises products and changes no result: what runs under it is
/// recorded as without it. Regions nest. While the mode's own handler runs, for which PyTorch takes it off, there has
/// to be none.
class KnownMode {
 public:
  KnownMode();
  ~KnownMode();
  KnownMode(const KnownMode&) = delete;
  KnownMode& operator=(const KnownMode&) = delete;
  /// On the thread of the constructor. A second call does nothing.
  void end();

 private:
  bool open_ = true;
};

}  // namespace remat::extension

// remat/tiled_mlp.h -- the feed-forward block of a transformer, of which the hidden layer is never whole.
//
//   y = remat::tiled_mlp(x, up->weight, down->weight, {.up_bias = up->bias, .down_bias = down->bias});
//   y = remat::tiled_mlp(x, up->weight, down->weight, {.activation = remat::Activation::kSilu, .gate = gate->weight});
//
// The same bits as with linear layers and activations: results, gradients and all. See remat/tiles.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <remat/tiles.h>

namespace remat {

/// at::gelu(), at::gelu() with "tanh", at::silu(), at::relu().
enum class Activation { kGelu, kGeluTanh, kSilu, kRelu };

/// Of tiled_mlp().
struct TiledMlpOptions {
  Activation activation = Activation::kGelu;  ///< between the two layers, or of the gate
  /// (hidden). Undefined: none.
  at::Tensor up_bias;
  /// (hidden, width), of a gated block such as SwiGLU. Undefined: no gate.
  at::Tensor gate;
  /// (hidden), where there is a gate. Undefined: none.
  at::Tensor gate_bias;
  /// Of the results. Undefined: none.
  at::Tensor down_bias;
  /// The share of hidden units that at::dropout() sets to 0, in [0, 1]; 0 in evaluation. With dropout the hidden layer
  /// is whole: PyTorch draws the numbers of a tensor in one go.
  double dropout = 0;
  /// See LinearCrossEntropyOptions.
  bool whole_trial = false;
};

/// at::linear(hidden, down, down_bias) of hidden = activation(at::linear(input, up, up_bias)), or with a gate
/// activation(at::linear(input, gate, gate_bias)) * at::linear(input, up, up_bias); autocast included.
///
/// `input`: (..., width), `up`: (hidden, width), `down`: (results, hidden). In tiles where the input is contiguous,
/// tensors are on the CPU and a trial has shown that tiles give the same bits; otherwise by these operators, with their
/// errors. In tiles, the backward pass computes the products of `up` and `gate` again.
///
/// Backward throws Error with create_graph, since nothing differentiates the tiles' gradients. Thread-safe.
at::Tensor tiled_mlp(const at::Tensor& input, const at::Tensor& up, const at::Tensor& down,
                     const TiledMlpOptions& options = {});

}  // namespace remat

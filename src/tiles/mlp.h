// src/tiles/mlp.h -- two linear layers with an activation between them, in tiles of tokens. Below autograd.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <remat/tiled_mlp.h>

#include "tiles/row_sum.h"
#include "tiles/rows.h"

namespace remat::tiles {

/// The tensors of an Mlp, in the order of its gradients.
enum MlpPart : size_t { kInput, kUp, kUpBias, kGate, kGateBias, kDown, kDownBias, kMlpParts };

/// By MlpPart.
template <class T>
using MlpParts = std::array<T, kMlpParts>;

struct Mlp {
  /// input: (tokens, width); up, gate: (hidden, width); down: (results, hidden). Gate and biases may be undefined.
  MlpParts<at::Tensor> parts;
  Activation activation = Activation::kGelu;

  const at::Tensor& operator[](MlpPart part) const { return parts[part]; }
  bool is_gated() const { return parts[kGate].defined(); }
  int64_t tokens() const { return parts[kInput].size(0); }
  int64_t width() const { return parts[kInput].size(1); }
  int64_t hidden() const { return parts[kUp].size(0); }
  int64_t results() const { return parts[kDown].size(0); }
};

struct MlpTiles {
  RowTiles rows;
  std::vector<Columns> in_fours = {};  ///< of the gradient of hidden units, see RowSum
};

at::Tensor activate(const at::Tensor& units, Activation activation);

at::Tensor forward(const Mlp& mlp, const RowTiles& tiles);

/// Of some tokens, (tokens, hidden).
struct HiddenLayer {
  at::Tensor units;         ///< what the layer `down` reads
  at::Tensor of_up;         ///< the gradient of what the layer `up` gives
  at::Tensor of_gate = {};  ///< undefined without a gate
};

/// Of tokens with these rows of the input, and of the gradient of the results.
HiddenLayer hidden_layer(const Mlp& mlp, const at::Tensor& input, const at::Tensor& gradient);

struct MlpGradients {
  MlpParts<at::Tensor> parts;
  at::Tensor
      input_of_gate;  ///< of the input, through the gate alone: autograd adds both to what others give, one by one
};

/// `gradient`: of the results. `needs`: which gradients are asked for; the others are undefined.
MlpGradients backward(const Mlp& mlp, const at::Tensor& gradient, const MlpParts<bool>& needs, const MlpTiles& tiles);

}  // namespace remat::tiles

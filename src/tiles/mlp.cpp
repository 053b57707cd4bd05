#include "tiles/mlp.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>

namespace remat::tiles {
namespace {

/// The hidden layer of some tokens.
struct Hidden {
  at::Tensor up;         ///< before the activation, or what the gate multiplies
  at::Tensor gate;       ///< before the activation; undefined without a gate
  at::Tensor activated;  ///< of the gate, or of `up`

  Hidden(const Mlp& mlp, const at::Tensor& input) : up(at::linear(input, mlp[kUp], mlp[kUpBias])) {
    if (mlp.is_gated()) gate = at::linear(input, mlp[kGate], mlp[kGateBias]);
    activated = activate(gate.defined() ? gate : up, mlp.activation);
  }

  at::Tensor units() const { return gate.defined() ? activated * up : activated; }
};

at::Tensor activation_backward(const at::Tensor& gradient, const at::Tensor& units, const at::Tensor& activated,
                               Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu_backward(gradient, units);
    case Activation::kGeluTanh:
      return at::gelu_backward(gradient, units, "tanh");
    case Activation::kSilu:
      return at::silu_backward(gradient, units);
    case Activation::kRelu:
      break;
  }
  return at::threshold_backward(gradient, activated, 0);
}

/// Of what the layers `up` and `gate` give.
struct OfUnits {
  at::Tensor up, gate;
};

OfUnits gradients_of(const Mlp& mlp, const Hidden& hidden, const at::Tensor& of_results) {
  const at::Tensor of_units = at::mm(of_results, mlp[kDown]);
  if (!mlp.is_gated()) return {activation_backward(of_units, hidden.up, hidden.activated, mlp.activation), {}};
  at::Tensor of_gate = activation_backward(of_units * hidden.up, hidden.gate, hidden.activated, mlp.activation);
  return {of_units * hidden.activated, std::move(of_gate)};
}

/// The gradients of a layer that gives hidden units, over tiles.
class LayerGradients {
 public:
  LayerGradients(bool needs_weight, bool needs_bias, int64_t tokens, const MlpTiles& tiles)
      : needs_weight_(needs_weight), needs_bias_(needs_bias), part_(tiles.rows.part), bias_(tokens, tiles.in_fours) {}

  void add(const at::Tensor& gradient, const at::Tensor& input) {
    if (needs_weight_) add_products(weight_, gradient, input, part_);
    if (needs_bias_) bias_.add(gradient);
  }
  const at::Tensor& weight() const { return weight_; }
  at::Tensor bias() const { return needs_bias_ ? bias_.total() : at::Tensor(); }

 private:
  const bool needs_weight_, needs_bias_;
  at::Tensor weight_;
  const int64_t part_;
  RowSum bias_;
};

}  // namespace

at::Tensor activate(const at::Tensor& units, Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(units);
    case Activation::kGeluTanh:
      return at::gelu(units, "tanh");
    case Activation::kSilu:
      return at::silu(units);
    case Activation::kRelu:
      break;
  }
  return at::relu(units);
}

HiddenLayer hidden_layer(const Mlp& mlp, const at::Tensor& input, const at::Tensor& gradient) {
  const Hidden hidden(mlp, input);
  const auto [of_up, of_gate] = gradients_of(mlp, hidden, gradient);
  return {hidden.units(), of_up, of_gate};
}

at::Tensor forward(const Mlp& mlp, const RowTiles& tiles) {
  at::Tensor result = at::empty({mlp.tokens(), mlp.results()}, mlp[kInput].options());
  for (int64_t begin = 0, count = 0; begin < mlp.tokens(); begin += count) {
    count = tiles.count(begin, mlp.tokens());
    const at::Tensor units = Hidden(mlp, mlp[kInput].narrow(0, begin, count)).units();
    result.narrow(0, begin, count).copy_(at::linear(units, mlp[kDown], mlp[kDownBias]));
  }
  return result;
}

MlpGradients backward(const Mlp& mlp, const at::Tensor& gradient, const MlpParts<bool>& needs, const MlpTiles& tiles) {
  MlpGradients gradients;
  MlpParts<at::Tensor>& result = gradients.parts;
  if (needs[kDownBias]) result[kDownBias] = gradient.sum(0);
  const bool needs_units = needs[kInput] || needs[kUp] || needs[kUpBias] || needs[kGate] || needs[kGateBias];
  if (!needs_units && !needs[kDown]) return gradients;
  if (needs[kInput]) result[kInput] = at::empty({mlp.tokens(), mlp.width()}, mlp[kInput].options());
  if (needs[kInput] && mlp.is_gated()) gradients.input_of_gate = at::empty_like(result[kInput]);
  LayerGradients up(needs[kUp], needs[kUpBias], mlp.tokens(), tiles);
  LayerGradients gate(needs[kGate], needs[kGateBias], mlp.tokens(), tiles);
  for (int64_t begin = 0, count = 0; begin < mlp.tokens(); begin += count) {
    count = tiles.rows.count(begin, mlp.tokens());
    const at::Tensor input = mlp[kInput].narrow(0, begin, count), of_results = gradient.narrow(0, begin, count);
    const Hidden hidden(mlp, input);
    if (needs[kDown]) add_products(result[kDown], of_results, hidden.units(), tiles.rows.part);
    if (!needs_units) continue;
    const auto [of_up, of_gate] = gradients_of(mlp, hidden, of_results);
    if (needs[kInput]) {
      at::Tensor of_input = result[kInput].narrow(0, begin, count);
      at::mm_out(of_input, of_up, mlp[kUp]);
      if (mlp.is_gated()) {
        at::Tensor of_input_of_gate = gradients.input_of_gate.narrow(0, begin, count);
        at::mm_out(of_input_of_gate, of_gate, mlp[kGate]);
      }
    }
    up.add(of_up, input);
    if (mlp.is_gated()) gate.add(of_gate, input);
  }
  result[kUp] = up.weight();
  result[kUpBias] = up.bias();
  result[kGate] = gate.weight();
  result[kGateBias] = gate.bias();
  return gradients;
}

}  // namespace remat::tiles

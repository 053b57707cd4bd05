// The cells of recurrent layers that PyTorch asks accelerators for by name, of the device's other operators.
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "device/registration.h"

namespace remat::simulated {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) { return given(bias) ? gates.add(*bias) : gates; }

/// The derivative of a sigmoid, and of tanh, by their results.
Tensor sigmoid_slope(const Tensor& result) { return result.mul(1 - result); }
Tensor tanh_slope(const Tensor& result) { return 1 - result.square(); }

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const Tensor gates = with_bias(input_gates, input_bias).add(with_bias(hidden_gates, hidden_bias));
  const std::vector<Tensor> parts = gates.chunk(4, 1);
  const Tensor in = parts[0].sigmoid();
  const Tensor forget = parts[1].sigmoid();
  const Tensor cell = parts[2].tanh();
  const Tensor out = parts[3].sigmoid();
  const Tensor cy = forget.mul(cx).add(in.mul(cell));
  return {out.mul(cy.tanh()), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!given(grad_hy) && !given(grad_cy)) return {};
  const std::vector<Tensor> parts = workspace.chunk(4, 1);
  const Tensor& in = parts[0];
  const Tensor& forget = parts[1];
  const Tensor& cell = parts[2];
  const Tensor& out = parts[3];
  const Tensor of_hy = given(grad_hy) ? *grad_hy : at::zeros_like(cy);
  const Tensor squashed = cy.tanh();
  Tensor of_cy = of_hy.mul(out).mul(tanh_slope(squashed));
  if (given(grad_cy)) of_cy = of_cy.add(*grad_cy);
  const Tensor of_gates = at::cat({of_cy.mul(cell).mul(sigmoid_slope(in)), of_cy.mul(cx).mul(sigmoid_slope(forget)),
                                   of_cy.mul(in).mul(tanh_slope(cell)), of_hy.mul(squashed).mul(sigmoid_slope(out))},
                                  1);
  return {of_gates, of_cy.mul(forget), has_bias ? of_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const std::vector<Tensor> in = with_bias(input_gates, input_bias).chunk(3, 1);
  const std::vector<Tensor> hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = hidden[0].add(in[0]).sigmoid();
  const Tensor update = hidden[1].add(in[1]).sigmoid();
  const Tensor candidate = in[2].add(hidden[2].mul(reset)).tanh();
  return {hx.sub(candidate).mul(update).add(candidate), at::cat({reset, update, candidate, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const std::vector<Tensor> parts = workspace.chunk(5, 1);
  const Tensor& reset = parts[0];
  const Tensor& update = parts[1];
  const Tensor& candidate = parts[2];
  const Tensor of_update = grad_hy.mul(parts[3].sub(candidate)).mul(sigmoid_slope(update));
  const Tensor of_candidate = grad_hy.mul(1 - update).mul(tanh_slope(candidate));
  const Tensor of_reset = of_candidate.mul(parts[4]).mul(sigmoid_slope(reset));
  const Tensor of_input = at::cat({of_reset, of_update, of_candidate}, 1);
  const Tensor of_hidden = at::cat({of_reset, of_update, of_candidate.mul(reset)}, 1);
  return {of_input, of_hidden, grad_hy.mul(update), has_bias ? of_input.sum(0) : Tensor(),
          has_bias ? of_hidden.sum(0) : Tensor()};
}

}  // namespace

void register_recurrent_kernels(c10::DispatchKey key) {
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  library->impl("_thnn_fused_lstm_cell", &lstm_cell);
  library->impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  library->impl("_thnn_fused_gru_cell", &gru_cell);
  library->impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

}  // namespace remat::simulated

// tests/export/step_sample.h -- a chain of layers as a step, made without torch.
#pragma once

#include <string>
#include <vector>

#include "export/step.h"

namespace remat::exporting {

/// y = w2 gelu(w1 gelu(... x)), the loss a sum, and its backward pass: each layer's gradient of the input, then that of
/// the weight.
inline Step chain_step(int layers, int64_t width) {
  using Kind = StepBuffer::Kind;
  using Phase = StepOperator::Phase;
  Step step;
  step.name = "chain";
  const auto buffer = [&](Kind kind, std::vector<int64_t> shape, const std::string& name = "") {
    StepBuffer made;
    made.kind = kind;
    made.name = name;
    made.shape = shape;
    made.elements = 1;
    for (const int64_t size : shape) made.elements *= size;
    made.bytes = 4 * made.elements;
    step.buffers.push_back(made);
    return static_cast<int32_t>(step.buffers.size()) - 1;
  };
  const auto call = [&](const std::string& kernel, Phase phase, std::vector<int32_t> inputs,
                        std::vector<int32_t> results, std::vector<StepArgument> arguments,
                        std::vector<std::pair<int32_t, int32_t>> in_place = {}) {
    StepOperator op;
    op.kernel = kernel;
    op.phase = phase;
    for (const int32_t input : inputs) op.inputs.push_back({input, 0});
    op.results = std::move(results);
    op.arguments = std::move(arguments);
    op.in_place = std::move(in_place);
    step.operators.push_back(std::move(op));
  };
  const auto n = static_cast<double>(width);
  // A row of `width` numbers times a square matrix; with `left` and `right` as (rows, sums, columns).
  const auto product = [&](double m, double k, double columns, double am, double ak, double bk, double bn) {
    return std::vector<StepArgument>{{"b", {1}},   {"m", {m}},   {"k", {k}},    {"n", {columns}},
                                     {"ab", {0}},  {"am", {am}}, {"ak", {ak}},  {"bb", {0}},
                                     {"bk", {bk}}, {"bn", {bn}}, {"relu", {0}}, {"scale", {1}}};
  };
  const std::vector<StepArgument> gelu = {{"n", {n}}, {"function", {3}}, {"p", {0}}, {"q", {0}}};
  const std::vector<StepArgument> sum = {{"outer", {1}}, {"middle", {n}}, {"inner", {1}}, {"scale", {1}}};

  int32_t x = buffer(Kind::kInput, {1, width}, "input");
  std::vector<int32_t> weights, inputs, products;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(buffer(Kind::kParameter, {width, width}, "w" + std::to_string(i)));
    inputs.push_back(x);
    products.push_back(buffer(Kind::kValue, {1, width}));
    call("matmul", Phase::kForward, {x, weights[i], -1}, {products[i], -1}, product(1, n, n, n, 1, 1, n));
    x = buffer(Kind::kValue, {1, width});
    call("unary", Phase::kForward, {products[i]}, {x}, gelu, {{0, 0}});
  }
  step.loss = buffer(Kind::kValue, {1});
  call("sum", Phase::kForward, {x}, {step.loss}, sum);
  int32_t dy = buffer(Kind::kValue, {1, width});
  call("fill", Phase::kBackward, {}, {dy}, {{"n", {n}}, {"value", {1}}});
  for (int i = layers - 1; i >= 0; --i) {
    const int32_t dz = buffer(Kind::kValue, {1, width});
    call("unary_grad", Phase::kBackward, {dy, products[i]}, {dz}, gelu, {{0, 0}, {1, 0}});
    if (i > 0) {
      dy = buffer(Kind::kValue, {1, width});
      call("matmul", Phase::kBackward, {dz, weights[i], -1}, {dy, -1}, product(1, n, n, n, 1, n, 1));
    }
    const int32_t gradient = buffer(Kind::kValue, {width, width});
    call("matmul_grad", Phase::kBackward, {dz, inputs[i]}, {gradient}, product(n, 1, n, 1, n, n, 1));
    step.gradients.push_back({weights[i], gradient, false});
  }
  return step;
}

}  // namespace remat::exporting

// Optimizers whose updates look at each element alone, and parameters of several sizes for them.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

namespace remat::test {

/// How an optimizer is made, and whether two states of a parameter are equal.
struct Kind {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> make;
  bool (*equal)(const torch::optim::OptimizerParamState&, const torch::optim::OptimizerParamState&);
};

template <class Optimizer, class State, class Options>
Kind kind(const char* name, Options options) {
  return {name, [options](const auto& parameters) { return std::make_unique<Optimizer>(parameters, options); },
          [](const torch::optim::OptimizerParamState& a, const torch::optim::OptimizerParamState& b) {
            return dynamic_cast<const State&>(a) == dynamic_cast<const State&>(b);
          }};
}

inline const std::vector<Kind>& kinds() {
  using namespace torch::optim;
  static const std::vector<Kind> all{
      kind<SGD, SGDParamState>("SGD", SGDOptions(0.1)),
      kind<SGD, SGDParamState>("SGD with momentum", SGDOptions(0.1).momentum(0.9).nesterov(true)),
      kind<Adam, AdamParamState>("Adam", AdamOptions(1e-2).weight_decay(0.1).amsgrad(true)),
      kind<AdamW, AdamWParamState>("AdamW", AdamWOptions(1e-2)),
      kind<RMSprop, RMSpropParamState>("RMSprop", RMSpropOptions(1e-2).momentum(0.9).centered(true)),
      kind<Adagrad, AdagradParamState>("Adagrad", AdagradOptions(1e-2)),
  };
  return all;
}
inline const Kind& adamw() { return kinds()[3]; }

/// The second parameter is updated in two parts; the third one's state stays in memory.
inline std::vector<at::Tensor> make_parameters() {
  torch::manual_seed(5);
  return {torch::randn({128, 200}).requires_grad_(), torch::randn({1 << 12, 600}).requires_grad_(),
          torch::randn(7).requires_grad_()};
}

inline at::Tensor loss_of(const std::vector<at::Tensor>& parameters, int step) {
  at::Tensor loss;
  for (const auto& parameter : parameters) {
    const auto term = (parameter * std::cos(step + 1.0)).square().mean() * static_cast<double>(parameter.size(0));
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

}  // namespace remat::test

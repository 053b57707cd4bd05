// tests/session/budgeted_net.h -- a net with dropout whose steps run within budgets.
#pragma once

#include "support/compare.h"

namespace remat::test {

struct Net {
  torch::nn::Sequential model;
  at::Tensor x;

  Net() {
    torch::manual_seed(3);
    for (int i = 0; i < 12; ++i) {
      model->push_back(torch::nn::Linear(128, 128));
      model->push_back(torch::nn::GELU());
      model->push_back(torch::nn::Dropout(0.1));
    }
    x = torch::randn({256, 128});
  }
  Outcome outcome() const {
    Outcome outcome;
    outcome.add_module(*model);
    outcome.add_generator();
    return outcome;
  }
  StepReport run_within(const Budget& budget) {
    model->zero_grad();
    Session session({.budget = budget});
    auto step = session.step();
    torch::manual_seed(5);
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    loss.reset();
    return step.end();
  }
};

}  // namespace remat::test

// tests/session/planned_loop.h -- a training loop whose steps follow plans.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <remat/session.h>

#include "support/compare.h"

namespace remat::test {

/// Runs `step` as a step of the session: the bits of `plain`, within the budget, or the test fails. Its outcome
/// outlives the step, which ends before.
template <class MakeStep>
StepReport run_in(Session& session, const Outcome& plain, MakeStep&& step) {
  Step guard = session.step();
  const Outcome outcome = step();
  StepReport report = guard.end();
  expect_same_bits(plain, outcome, "step " + std::to_string(report.step));
  EXPECT_LE(report.peak_bytes, report.budget_bytes) << report.step;
  return report;
}

/// A chain of layers with dropout; depth and batch may change from step to step.
struct Loop {
  static constexpr int64_t kWidth = 64;
  torch::nn::Sequential layers;
  int64_t batch = 256;
  size_t depth = 12;
  bool policy = false;  ///< keep_compute over the forward pass

  Loop() {
    torch::manual_seed(3);
    for (int i = 0; i < 16; ++i) layers->push_back(torch::nn::Linear(kWidth, kWidth));
  }

  Outcome step() {
    torch::manual_seed(5);
    layers->zero_grad();
    auto x = torch::randn({batch, kWidth}).requires_grad_();
    at::Tensor h = x;
    std::optional<PolicyScope> scope;
    if (policy) scope.emplace(Policy::keep_compute());
    for (size_t i = 0; i < depth; ++i) {
      h = torch::dropout(torch::gelu(layers->ptr<torch::nn::LinearImpl>(i)->forward(h)), 0.1, true);
    }
    scope.reset();
    const auto loss = h.pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add("x", x.grad());
    outcome.add_module(*layers);
    outcome.add_generator();
    return outcome;
  }

  /// A step plain, and as a step of the session.
  StepReport in(Session& session) {
    const Outcome plain = step();
    return run_in(session, plain, [this] { return step(); });
  }

  /// Plain's activation peak, as a step of a session without a budget measures it.
  StepReport measure() {
    Session session;
    in(session);
    return in(session);
  }
};

inline Budget share_of(const StepReport& plain, int percent) {
  return Budget::bytes(plain.baseline_bytes + plain.plain_activation_peak_bytes() * percent / 100);
}

}  // namespace remat::test

// Optimizers inside and outside the step, and parameters that are updated during backward.
#include "support/compare.h"

#include <optional>

namespace remat::test {
namespace {

namespace nn = torch::nn;

enum class LoopMode { kPlain, kSession, kVerified };

/// Trains for four steps; `train` does forward, backward and update.
template <class Optimizer, class Options>
Outcome training(LoopMode mode, Options options, bool update_inside) {
  torch::manual_seed(9);
  nn::Sequential model(nn::Linear(8, 16), nn::GELU(), nn::Dropout(0.1), nn::Linear(16, 16),
                       nn::BatchNorm1d(nn::BatchNorm1dOptions(16)), nn::Linear(16, 4));
  Optimizer optimizer(model->parameters(), options);
  std::optional<Session> session;
  if (mode != LoopMode::kPlain) {
    session.emplace(SessionOptions{.budget = {}, .device = c10::kCPU, .verify = mode == LoopMode::kVerified});
  }
  Outcome outcome;
  for (int i = 0; i < 4; ++i) {
    {
      std::optional<Step> step;
      std::optional<PolicyScope> scope;
      if (session) step.emplace(session->step());
      if (mode == LoopMode::kVerified) scope.emplace(Policy::drop_all());
      optimizer.zero_grad();
      auto loss = model->forward(torch::randn({6, 8})).pow(2).mean();
      loss.backward();
      outcome.add("loss", loss);
      if (update_inside) optimizer.step();
    }
    if (!update_inside) optimizer.step();
  }
  for (const auto& p : model->named_parameters()) outcome.add(p.key(), p.value());
  outcome.add_module(*model);
  outcome.add_generator();
  return outcome;
}

template <class Optimizer, class Options>
void expect_exact_training(Options options) {
  for (const bool inside : {false, true}) {
    const Outcome plain = training<Optimizer>(LoopMode::kPlain, options, inside);
    for (const LoopMode mode : {LoopMode::kSession, LoopMode::kVerified}) {
      expect_same_bits(plain, training<Optimizer>(mode, options, inside), inside ? "inside" : "outside");
    }
  }
}

TEST(Optimizer, SgdWithMomentum) {
  expect_exact_training<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
}
TEST(Optimizer, AdamW) { expect_exact_training<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)); }
TEST(Optimizer, RmsProp) { expect_exact_training<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01)); }
TEST(Optimizer, Adagrad) { expect_exact_training<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01)); }

TEST(Optimizer, UpdatesDuringBackward) {
  // A hook on each parameter applies its gradient as soon as it is known. Backward no longer needs that weight then,
  // but a replay might: it has to be exact, or to refuse and say what was modified.
  const auto program = [](LoopMode mode, bool& refused) {
    torch::manual_seed(9);
    nn::Sequential model;
    for (int i = 0; i < 6; ++i) {
      model->push_back(nn::Linear(16, 16));
      model->push_back(nn::GELU());
    }
    for (auto& p : model->parameters()) {
      p.register_hook([data = p.variable_data()](const at::Tensor& g) {  // not p itself, which owns the hook
        const torch::NoGradGuard no_grad;
        data.sub_(g, 0.1);
      });
    }
    Outcome outcome;
    std::optional<Session> session;
    if (mode != LoopMode::kPlain) {
      session.emplace(SessionOptions{.budget = {}, .device = c10::kCPU, .verify = mode == LoopMode::kVerified});
    }
    for (int i = 0; i < 3 && !refused; ++i) {
      std::optional<Step> step;
      std::optional<PolicyScope> scope;
      if (session) step.emplace(session->step());
      if (mode == LoopMode::kVerified) scope.emplace(Policy::drop_all());
      try {
        auto loss = model->forward(torch::ones({4, 16}) * (i + 1)).pow(2).mean();
        loss.backward();
        outcome.add("loss", loss);
      } catch (const Error& e) {
        refused = true;
        EXPECT_NE(std::string(e.what()).find("::"), std::string::npos) << e.what();
      }
    }
    if (!refused) {
      for (const auto& p : model->parameters()) outcome.add("parameter", p);
    }
    return outcome;
  };
  bool refused = false;
  const Outcome plain = program(LoopMode::kPlain, refused);
  ASSERT_FALSE(refused);
  for (const LoopMode mode : {LoopMode::kSession, LoopMode::kVerified}) {
    refused = false;
    const Outcome other = program(mode, refused);
    if (!refused) expect_same_bits(plain, other, "updated in backward");
  }
}

TEST(Optimizer, WeightAveragesWrittenInForward) {
  expect_exact([] {
    nn::Linear layer(8, 8), average(8, 8);
    at::Tensor loss = torch::zeros({});
    for (int i = 0; i < 3; ++i) {
      auto x = torch::randn({4, 8});
      auto target = average->forward(x).detach().sin();
      loss = loss + (layer->forward(x).tanh() - target).pow(2).sum();
      const torch::NoGradGuard no_grad;
      average->weight.mul_(0.9).add_(layer->weight, 0.1);
      average->bias.lerp_(layer->bias, 0.1);
    }
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add_module(*layer);
    outcome.add("average", average->weight);
    return outcome;
  });
}

/// The measured peak of a step that updates its parameter and goes on, above what was alive before it.
int64_t peak_of_update(Session* session) {
  torch::manual_seed(7);
  const auto weight = torch::randn({256, 256}).requires_grad_(), x = torch::randn({8, 256});
  memory::reset_peak();
  const int64_t before = memory::current();
  std::optional<Step> step;
  if (session != nullptr) step.emplace(session->step());
  x.mm(weight).sin().sum().backward();
  const torch::NoGradGuard no_grad;
  auto direction = weight.grad().neg();
  weight.add_(direction.mul(0.5));
  const auto previous = weight.grad().clone();
  for (int i = 0; i < 3; ++i) direction = direction.sub(previous).neg();
  return memory::peak() - before;
}

TEST(Optimizer, WhatIsInHandsWhenAParameterIsWrittenToIsNotHeldLonger) {
  memory::start_accounting();
  Session session;
  const int64_t plain = peak_of_update(nullptr);
  EXPECT_EQ(peak_of_update(&session), plain);
}

}  // namespace
}  // namespace remat::test

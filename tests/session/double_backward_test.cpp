// Graphs that backward makes (create_graph): what they save is dropped and recomputed like anything else.
#include "support/compare.h"

namespace remat::test {
namespace {

using torch::autograd::grad;

/// Layers deep enough for the activations to outweigh the parameters.
torch::nn::Sequential layers(int64_t width = 32, int count = 4) {
  torch::nn::Sequential net;
  for (int i = 0; i < count; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::SiLU());
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  return net;
}

struct Training {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> loss;  ///< of one step
};

/// The gradient penalty of WGAN-GP (Gulrajani et al. 2017).
Training wgan() {
  auto critic = layers();
  return {"WGAN-GP", critic.ptr(), [critic]() mutable {
            const auto real = torch::randn({256, 32});
            const auto fake = torch::randn({256, 32});
            const auto share = torch::rand({256, 1});
            const auto between = (share * real + (1 - share) * fake).requires_grad_();
            const auto score = critic->forward(between);
            const auto slope = grad({score.sum()}, {between}, {}, true, /*create_graph=*/true)[0];
            const auto penalty = (slope.norm(2, 1) - 1).pow(2).mean();
            return critic->forward(fake).mean() - critic->forward(real).mean() + 10 * penalty;
          }};
}

/// Two inner steps, through which the outer loss is differentiated (Finn et al. 2017).
Training maml() {
  auto net = layers();
  return {"MAML", net.ptr(), [net]() mutable {
            const auto run = [](const std::vector<at::Tensor>& p, at::Tensor x) {
              for (size_t i = 0; i + 3 < p.size(); i += 4) {
                x = at::silu(at::linear(x, p[i], p[i + 1]));
                x = at::layer_norm(x, {32}, p[i + 2], p[i + 3]);
              }
              return x.square().mean();
            };
            auto weights = net->parameters();
            for (int inner = 0; inner < 2; ++inner) {
              const auto gradients = grad({run(weights, torch::randn({256, 32}))}, weights, {}, true, true);
              for (size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] - 0.1 * gradients[i];
            }
            return run(weights, torch::randn({256, 32}));
          }};
}

/// The product of the Hessian with a vector, differentiated once more.
Training hessian() {
  auto net = layers(32, 3);
  return {"Hessian-vector product", net.ptr(), [net]() mutable {
            const auto parameters = net->parameters();
            const auto loss = net->forward(torch::randn({256, 32})).square().mean();
            const auto first = grad({loss}, parameters, {}, true, true);
            at::Tensor dot = torch::zeros({});
            for (const auto& g : first) dot = dot + (g * torch::randn_like(g)).sum();
            const auto second = grad({dot}, parameters, {}, true, true, /*allow_unused=*/true);
            for (const auto& g : second) {
              if (g.defined()) dot = dot + g.square().sum();
            }
            return dot;
          }};
}

std::vector<Training> trainings() { return {wgan(), maml(), hessian()}; }

Outcome step(const Training& training) {
  training.module->zero_grad();
  Outcome outcome;
  const auto loss = training.loss();
  loss.backward();
  outcome.add("loss", loss);
  outcome.add_module(*training.module);
  outcome.add_generator();
  return outcome;
}

TEST(DoubleBackward, EverythingDroppedGivesTheSameBits) {
  for (const Training& training : trainings()) {
    const Outcome plain = run_seeded([&] { return step(training); });
    Session session;
    const auto run = session.step();
    const PolicyScope scope(Policy::drop_all());
    expect_same_bits(plain, run_seeded([&] { return step(training); }), training.name);
  }
}

TEST(DoubleBackward, SixtyPercentOfPlainsPeakAreEnough) {
  for (const Training& training : trainings()) {
    const Outcome plain = run_seeded([&] { return step(training); });
    for (const char* planner : {"auto", "online"}) {
      Session session({.budget = Budget::percent(60), .planner = planner});
      for (int i = 0; i < 4; ++i) {
        SCOPED_TRACE(training.name + ", " + planner + ", step " + std::to_string(i));
        const auto before = memory::current(at::kCPU);
        expect_same_bits(plain, run_seeded([&] {
                           const auto scope = session.step();
                           return step(training);
                         }),
                         training.name);
        const StepReport& report = session.report();
        EXPECT_LE(report.peak_bytes, report.budget_bytes);
        if (i == 0) continue;  // in which memory of before the accounting is met
        EXPECT_EQ(memory::current(at::kCPU), before);
        EXPECT_GT(report.values_dropped, 0);
      }
    }
  }
}

TEST(DoubleBackward, TheGraphOfAStepIsSound) {
  for (const Training& training : trainings()) {
    Session session({.budget = Budget::percent(60)});
    for (int i = 0; i < 2; ++i) {
      const auto scope = session.step();
      step(training);
    }
    EXPECT_EQ(session.graph().problem(), "") << training.name;
  }
}

TEST(DoubleBackward, WhatBackwardSavesIsDropped) {
  const auto x = torch::randn({64, 64}, at::requires_grad());
  Session session;
  const auto run = session.step();
  const PolicyScope scope(Policy::drop_all());
  const auto y = x.sigmoid();
  const auto before = memory::current(at::kCPU);
  auto slope = grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  for (int i = 0; i < 4; ++i) slope = slope.square();
  // The last square and, until the next operator, what it read; numbers beside them.
  EXPECT_LT(memory::current(at::kCPU) - before, int64_t{2} * 64 * 64 * 4 + 4096);
  slope.sum().backward();
}

}  // namespace
}  // namespace remat::test

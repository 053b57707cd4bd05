// The ways of asking autograd for gradients: kept graphs, parts, double backward, hooks.
#include "support/compare.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <remat/session.h>

namespace remat::test {
namespace {

namespace nn = torch::nn;
using torch::autograd::grad;

struct Fixture {
  nn::Sequential model{nn::Linear(8, 16),  nn::GELU(), nn::Dropout(0.2),
                       nn::Linear(16, 16), nn::Tanh(), nn::Linear(16, 4)};
  at::Tensor x = torch::randn({6, 8}).requires_grad_();

  at::Tensor loss() { return model->forward(x).pow(2).sum(); }
  Outcome outcome(const std::vector<at::Tensor>& extra = {}) const {
    Outcome result;
    result.add_module(*model);
    result.add("grad of x", x.grad());
    for (const auto& t : extra) result.add("extra", t);
    result.add_generator();
    return result;
  }
};

TEST(Backward, SeveralTimesOnAKeptGraph) {
  expect_exact([] {
    Fixture f;
    auto loss = f.loss();
    for (int i = 0; i < 3; ++i) loss.backward({}, /*retain_graph=*/i < 2);
    return f.outcome({loss});
  });
}

TEST(Backward, SeveralLossesThatShareAGraph) {
  expect_exact([] {
    Fixture f;
    auto h = f.model->forward(f.x);
    auto a = h.exp().sum(), b = (h * h.sin()).mean(), c = h.select(1, 0).sum();
    a.backward({}, true);
    b.backward({}, true);
    c.backward();
    return f.outcome({a, b, c});
  });
}

TEST(Backward, OfAPartOfTheGraph) {
  expect_exact([] {
    Fixture f;
    auto h = f.model->forward(f.x);
    auto y = (h.sin() * h).sum();
    auto part = grad({y}, {h}, {}, true);
    auto input = grad({y}, {f.x}, {}, true);
    auto parameters = f.model->parameters();
    auto one = grad({y}, {parameters[2]}, {}, true);
    y.backward();
    return f.outcome({part[0], input[0], one[0]});
  });
}

TEST(Backward, WithAGivenGradient) {
  expect_exact([] {
    Fixture f;
    auto h = f.model->forward(f.x);
    h.backward(torch::randn_like(h));
    return f.outcome();
  });
}

TEST(Backward, Twice) {
  expect_exact([] {
    Fixture f;
    auto loss = f.loss();
    auto first = grad({loss}, {f.x}, {}, true, /*create_graph=*/true)[0];
    auto penalty = (first.norm() - 1).pow(2) + loss;
    penalty.backward();
    return f.outcome({first, penalty});
  });
}

TEST(Backward, ThreeTimesOver) {
  expect_exact([] {
    auto x = torch::randn({5}, at::kDouble).requires_grad_();
    auto y = (x.sin() * x.exp()).sum();
    for (int i = 0; i < 3; ++i) y = grad({y}, {x}, {}, true, true)[0].pow(2).sum();
    y.backward();
    Outcome outcome;
    outcome.add("grad", x.grad());
    return outcome;
  });
}

TEST(Backward, MetaLearning) {
  // Gradients through two inner steps of gradient descent, as MAML does.
  expect_exact([] {
    auto w = torch::randn({8, 4}).requires_grad_();
    auto x = torch::randn({6, 8}), y = torch::randn({6, 4});
    auto fast = w * 1.0;
    for (int i = 0; i < 2; ++i) {
      auto inner = (at::tanh(x.mm(fast)) - y).pow(2).mean();
      fast = fast - 0.1 * grad({inner}, {fast}, {}, true, true)[0];
    }
    auto outer = (at::tanh(x.mm(fast)) - y).pow(2).mean();
    outer.backward();
    Outcome outcome;
    outcome.add("loss", outer);
    outcome.add("grad", w.grad());
    return outcome;
  });
}

TEST(Backward, TensorHooksOnIntermediatesAndLeaves) {
  expect_exact([] {
    Fixture f;
    auto h = f.model->forward(f.x).sigmoid();
    std::vector<at::Tensor> seen;
    h.register_hook([&](const at::Tensor& g) { seen.push_back(g.clone()); });
    f.x.register_hook([&](const at::Tensor& g) { return g * 2 + at::rand_like(g); });
    h.retain_grad();
    (h * h.exp()).sum().backward();
    seen.push_back(h.grad());
    return f.outcome(seen);
  });
}

TEST(Backward, ForwardComputationInsideAHook) {
  expect_exact([] {
    Fixture f;
    auto h = f.model->forward(f.x);
    h.register_hook([&](const at::Tensor& g) {
      const torch::AutoGradMode grad_mode(true);
      auto z = g.detach().requires_grad_();
      return g + 0.1 * grad({(z.sin() * z).sum()}, {z})[0];
    });
    (h * h).sum().backward();
    return f.outcome();
  });
}

TEST(Backward, FrozenParametersAndInputs) {
  expect_exact([] {
    Fixture f;
    f.x.requires_grad_(false);
    auto parameters = f.model->parameters();
    parameters[0].requires_grad_(false);
    parameters[1].requires_grad_(false);
    parameters[3].requires_grad_(false);
    auto loss = f.loss();
    loss.backward();
    return f.outcome({loss});
  });
}

TEST(Backward, DataDependentControlFlowAndShapes) {
  expect_exact([] {
    Fixture f;
    auto h = f.x;
    for (int step = 0; step < 4; ++step) {
      auto y = f.model->forward(h);
      h = y.sum().item<float>() > 0 ? at::cat({y, y.sin()}, 1) : at::cat({y.cos(), y}, 1);
      h = h.index({(h.select(1, 0).detach() > -10).nonzero().squeeze(1)});
    }
    h.pow(2).sum().backward();
    return f.outcome();
  });
}

TEST(Backward, UnderAutocast) {
  expect_exact([] {
    Fixture f;
    const bool before = at::autocast::is_autocast_enabled(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
    auto h = f.model->forward(f.x);
    auto again = f.model->forward(f.x * 0.5);  // the cached casts of the weights
    at::Tensor outside;
    {
      at::autocast::set_autocast_enabled(at::kCPU, false);
      outside = h.to(at::kFloat).softmax(1);
      at::autocast::set_autocast_enabled(at::kCPU, true);
    }
    auto loss = at::mse_loss(h.to(at::kFloat) * outside, again.to(at::kFloat).detach()) + again.to(at::kFloat).sum();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before);
    loss.backward();
    return f.outcome({loss});
  });
}

TEST(Backward, CalledInsideAnAutocastRegion) {
  // Backward's own operators are cast then; a replay must not be: it repeats what ran with autocast off.
  expect_exact([] {
    Fixture f;
    auto weight = torch::randn({4, 4}).requires_grad_();
    auto h = f.model->forward(f.x).mm(weight).sin();
    auto loss = (h * h.mm(weight)).sum();
    const bool before = at::autocast::is_autocast_enabled(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
    loss.backward();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before);
    return f.outcome({loss, weight.grad()});
  });
}

TEST(Backward, AStepThatEndsInItLeavesNothingBehind) {
  Session session;
  for (int i = 0; i < 2; ++i) {
    Fixture f;
    auto step = session.step();
    auto loss = f.loss();
    f.x.register_hook([&](const at::Tensor& gradient) {
      step.end();
      return gradient;
    });
    loss.backward();
    EXPECT_FALSE(at::hasThreadLocalCallbacks()) << "operators are still watched";
  }
}

TEST(Backward, AStepThatEndsInOneThatFailsLeavesNothingBehind) {
  Session session;
  Fixture f;
  auto step = session.step();
  auto loss = f.loss();
  f.x.register_hook([&](const at::Tensor& gradient) {
    step.end(false);
    throw std::runtime_error("stop");
    return gradient;
  });
  EXPECT_THROW(loss.backward(), std::runtime_error);
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
}

}  // namespace
}  // namespace remat::test

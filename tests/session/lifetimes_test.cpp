// Graphs and tensors that live longer than a step, a scope or a session.
#include "support/compare.h"

#include <optional>

#include <c10/core/CPUAllocator.h>

namespace remat::test {
namespace {

namespace nn = torch::nn;

struct RecurrentNet {
  nn::Linear in{8, 16};
  nn::Linear recurrent{16, 16};
  nn::Linear out{16, 4};

  at::Tensor next(const at::Tensor& x, const at::Tensor& h) {
    return at::dropout(at::tanh(in->forward(x) + recurrent->forward(h)), 0.1, true);
  }
  at::Tensor loss_of(const at::Tensor& h) { return out->forward(h).pow(2).mean(); }
  Outcome outcome() const {
    Outcome result;
    for (const auto& layer : {in, recurrent, out}) result.add_module(*layer);
    result.add_generator();
    return result;
  }
};

enum class Mode { kPlain, kSession, kVerified, kScopes };

/// A session, step and policy for a mode; plain has none.
struct Frame {
  std::optional<Step> step;
  std::optional<PolicyScope> scope;
  Frame(Mode mode, std::optional<Session>& session) {
    if (mode == Mode::kSession || mode == Mode::kVerified) {
      if (!session)
        session.emplace(SessionOptions{.budget = {}, .device = c10::kCPU, .verify = mode == Mode::kVerified});
      step.emplace(session->step());
    }
    if (mode != Mode::kPlain && mode != Mode::kSession) scope.emplace(Policy::drop_all());
  }
};

using ModalProgram = std::function<Outcome(Mode, std::optional<Session>&)>;

void expect_exact_in_every_mode(const ModalProgram& program) {
  memory::start_accounting();
  const auto run = [&](Mode mode) {
    torch::manual_seed(11);
    std::optional<Session> session;
    return program(mode, session);
  };
  const Outcome plain = run(Mode::kPlain);
  run(Mode::kVerified);  // PyTorch keeps some tensors of its first call
  for (const Mode mode : {Mode::kSession, Mode::kVerified, Mode::kScopes}) {
    const int64_t before = memory::current();
    expect_same_bits(plain, run(mode), "mode " + std::to_string(static_cast<int>(mode)));
    EXPECT_EQ(memory::current(), before) << "mode " << static_cast<int>(mode) << " leaks";
  }
}

TEST(Lifetimes, BackwardAfterTheStepEnded) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    at::Tensor loss;
    {
      Frame frame(mode, session);
      loss = net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16})));
    }
    loss.backward();
    return net.outcome();
  });
}

TEST(Lifetimes, BackwardAfterTheSessionIsGone) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    at::Tensor loss;
    {
      Frame frame(mode, session);
      loss = net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16})));
    }
    session.reset();
    loss.backward();
    return net.outcome();
  });
}

TEST(Lifetimes, BackwardInALaterStep) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    at::Tensor first;
    {
      Frame frame(mode, session);
      first = net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16})));
    }
    {
      Frame frame(mode, session);
      auto second = net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16})));
      (first + second).backward();
    }
    return net.outcome();
  });
}

TEST(Lifetimes, LossesKeptAcrossSteps) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    std::vector<at::Tensor> losses;
    for (int i = 0; i < 4; ++i) {
      Frame frame(mode, session);
      auto loss = net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16})));
      loss.backward();
      losses.push_back(loss);
    }
    auto outcome = net.outcome();
    for (const auto& loss : losses) outcome.add("loss", loss);
    return outcome;
  });
}

TEST(Lifetimes, GradientsAccumulatedOverMicroSteps) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    for (int i = 0; i < 4; ++i) {
      Frame frame(mode, session);
      (net.loss_of(net.next(torch::randn({2 + i, 8}), torch::randn({2 + i, 16}))) / 4).backward();
    }
    return net.outcome();
  });
}

TEST(Lifetimes, TruncatedBackpropagationThroughTime) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    auto h = torch::zeros({4, 16});
    for (int i = 0; i < 4; ++i) {
      Frame frame(mode, session);
      at::Tensor loss = torch::zeros({});
      for (int t = 0; t < 3; ++t) {
        h = net.next(torch::randn({4, 8}), h);
        loss = loss + net.loss_of(h);
      }
      loss.backward();
      h = h.detach();
    }
    auto outcome = net.outcome();
    outcome.add("state", h);
    return outcome;
  });
}

TEST(Lifetimes, HiddenStateWithItsGraphAcrossSteps) {
  // Each backward goes through the graph of the step before too.
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    auto h = torch::zeros({4, 16}).requires_grad_();
    at::Tensor previous;
    for (int i = 0; i < 3; ++i) {
      Frame frame(mode, session);
      auto fresh = net.next(torch::randn({4, 8}), h);
      net.loss_of(fresh).backward({}, /*retain_graph=*/true);
      h = i == 1 ? fresh.detach() : fresh;
    }
    return net.outcome();
  });
}

TEST(Lifetimes, ShapesThatChangeEveryStep) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    for (const int64_t batch : {4, 1, 7, 0, 3}) {
      Frame frame(mode, session);
      auto h = torch::zeros({batch, 16});
      for (int64_t t = 0; t < 1 + batch % 3; ++t) h = net.next(torch::randn({batch, 8}), h);
      net.out->forward(h).pow(2).sum().backward();
    }
    return net.outcome();
  });
}

TEST(Lifetimes, AScopeAcrossSteps) {
  memory::start_accounting();
  const auto program = [](bool with_remat) {
    torch::manual_seed(11);
    RecurrentNet net;
    std::optional<Session> session;
    std::optional<PolicyScope> scope;
    if (with_remat) session.emplace();
    for (int i = 0; i < 3; ++i) {
      std::optional<Step> step;
      if (with_remat) step.emplace(session->step());
      if (with_remat && i == 0) scope.emplace(Policy::drop_all());
      auto h = net.next(torch::randn({4, 8}), torch::randn({4, 16}));
      if (i == 1) scope.reset();  // ends in another step than it began
      net.loss_of(h).backward();
    }
    return net.outcome();
  };
  expect_same_bits(program(false), program(true), "scope across steps");
}

// Nothing is saved of an evaluation and of frozen layers: what scopes hold for recomputes of it, as values from
// outside, must go when plain lets go of it.
TEST(Lifetimes, WhatScopesReadWithoutSavingGoes) {
  memory::start_accounting();
  constexpr int64_t kBytes = 1 << 20;
  std::vector<at::Tensor> figures;  // small results that stay
  const auto deep = [&](at::Tensor x, const auto& scope) {
    for (int block = 0; block < 16; ++block) {
      [[maybe_unused]] const auto held = scope();
      x = (x * 2).sin();
      figures.push_back(x.mean());
    }
    return x;
  };
  const auto none = [] { return 0; };
  const auto drop = [] { return std::make_unique<PolicyScope>(Policy::drop_all()); };
  const auto run = [&](const auto& scope, bool evaluate) {
    auto weight = torch::ones({kBytes / 4}).requires_grad_();
    Session session({.budget = {}, .device = c10::kCPU});
    auto step = session.step();
    const int64_t before = memory::current();
    const auto grad = std::make_unique<c10::AutoGradMode>(!evaluate);
    const auto encoded = deep(torch::linspace(0, 1, kBytes / 4), scope);
    at::Tensor loss;
    if (!evaluate) loss = (encoded * weight).sum();
    const int64_t held = memory::current() - before;
    if (!evaluate) loss.backward();
    return std::pair(held / kBytes, weight.grad());
  };
  EXPECT_LE(run(drop, true).first, run(none, true).first + 1);  // the last scope's is let go by the next operator
  const auto [plain, plain_gradient] = run(none, false);
  const auto [scoped, gradient] = run(drop, false);
  EXPECT_LE(scoped, plain + 1);
  EXPECT_TRUE(same_bits(gradient, plain_gradient));
}

TEST(Lifetimes, ALongScopeLetsGoOfWhatItHasRead) {
  memory::start_accounting();
  constexpr int64_t kBytes = 1 << 16, kInputs = 400;
  const auto weight = torch::ones({kBytes / 4});
  for (const bool trains : {false, true}) {
    weight.set_requires_grad(trains);
    const int64_t before = memory::current();
    std::vector<at::Tensor> inputs;
    for (int i = 0; i < kInputs; ++i) inputs.push_back(torch::full({kBytes / 4}, i));
    const PolicyScope scope(Policy::drop_all());
    for (; !inputs.empty(); inputs.pop_back()) {
      const at::Tensor mean = (weight * inputs.back()).sin().mean();
      if (trains) mean.backward();
    }
    EXPECT_LT((memory::current() - before) / kBytes, kInputs / 4) << trains;
  }
}

// A pointer that is given a new scope begins it before it ends the old one.
TEST(Lifetimes, ScopesWithoutASessionEndInAnyOrder) {
  memory::start_accounting();
  const auto x = torch::ones({1 << 16}).requires_grad_();
  const auto held = [&] {  // tensors of this size, after the forward pass
    const int64_t before = memory::current();
    at::Tensor y = x.exp();
    for (int i = 0; i < 8; ++i) y = y.tanh();
    y = y.sum();
    const int64_t bytes = memory::current() - before;
    y.backward();
    return bytes >> 18;
  };
  const int64_t plain = held();
  std::unique_ptr<PolicyScope> scope;
  for (int i = 0; i < 3; ++i) {
    scope = std::make_unique<PolicyScope>(Policy::drop_all());
    EXPECT_LE(held(), 2) << i;
  }
  scope.reset();
  EXPECT_EQ(held(), plain) << "recording goes on";
}

TEST(Lifetimes, AStepInsideAScopeIsRefusedOrExact) {
  const auto program = [](bool with_remat) {
    torch::manual_seed(11);
    RecurrentNet net;
    std::optional<PolicyScope> scope;
    std::optional<Session> session;
    std::optional<Step> step;
    if (with_remat) {
      scope.emplace(Policy::drop_all());
      session.emplace();
      try {
        step.emplace(session->step());
      } catch (const Error&) {
      }
    }
    net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16}))).backward();
    return net.outcome();
  };
  expect_same_bits(program(false), program(true), "step inside a scope");
}

TEST(Lifetimes, OneStepAtATime) {
  Session a, b;
  auto step = a.step();
  EXPECT_THROW((void)a.step(), Error);
  EXPECT_THROW((void)b.step(), Error);
  step.end();
  EXPECT_NO_THROW({ auto next = b.step(); });
  EXPECT_EQ(step.end().step, 1);
}

TEST(Lifetimes, ManySessionsOneAfterAnother) {
  memory::start_accounting();
  torch::manual_seed(11);
  RecurrentNet net;
  const int64_t before = memory::current();
  for (int i = 0; i < 50; ++i) {
    Session session;
    Session moved(std::move(session));
    auto step = moved.step();
    net.loss_of(net.next(torch::randn({4, 8}), torch::randn({4, 16}))).backward();
    for (auto layer : {net.in, net.recurrent, net.out}) layer->zero_grad();
  }
  EXPECT_EQ(memory::current(), before);
}

TEST(Lifetimes, ASessionDestroyedDuringItsStep) {
  expect_exact_in_every_mode([](Mode mode, std::optional<Session>& session) {
    RecurrentNet net;
    Frame frame(mode, session);
    auto h = net.next(torch::randn({4, 8}), torch::randn({4, 16}));
    session.reset();
    net.loss_of(h).backward();
    return net.outcome();
  });
}

TEST(Lifetimes, AnotherAllocatorInTheMiddleOfAStepIsAnError) {
  Session session;
  Step step = session.step();
  c10::Allocator* const ours = c10::GetCPUAllocator();
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), UINT8_MAX);
  EXPECT_THROW(step.end(), Error);
  EXPECT_NO_THROW(step.end()) << "said once";
  EXPECT_THROW(session.step(), Error);
  c10::SetCPUAllocator(ours, UINT8_MAX);
  EXPECT_NO_THROW(session.step().end());
}

}  // namespace
}  // namespace remat::test

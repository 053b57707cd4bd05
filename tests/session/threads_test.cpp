// Several threads: own sessions, tensors in common, backward where forward was not.
#include "support/compare.h"

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace remat::test {
namespace {

namespace nn = torch::nn;

nn::Sequential make_model() {
  return nn::Sequential(nn::Linear(16, 32), nn::GELU(), nn::Linear(32, 32), nn::Tanh(), nn::Linear(32, 4));
}

Outcome gradients(const nn::Sequential& model) {
  Outcome outcome;
  outcome.add_module(*model);
  return outcome;
}

TEST(Threads, EachWithASessionOfItsOwn) {
  memory::start_accounting();
  torch::manual_seed(3);
  constexpr int kThreads = 4;
  std::vector<nn::Sequential> models;
  std::vector<at::Tensor> inputs;
  std::vector<Outcome> plain;
  for (int i = 0; i < kThreads; ++i) {
    models.push_back(make_model());
    inputs.push_back(torch::randn({8, 16}));
    models.back()->forward(inputs.back()).pow(2).sum().backward();
    plain.push_back(gradients(models.back()));
    models.back()->zero_grad();
  }
  constexpr int kRepeats = 20;
  std::vector<std::vector<Outcome>> results(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < kRepeats; ++repeat) {
        models[i]->zero_grad();
        Session session({.budget = {}, .device = c10::kCPU, .verify = repeat % 2 == 1});
        auto step = session.step();
        std::optional<PolicyScope> scope;
        if (repeat % 3 != 0) scope.emplace(Policy::drop_all());
        models[i]->forward(inputs[i]).pow(2).sum().backward();
        results[i].push_back(gradients(models[i]));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) {
    ASSERT_EQ(results[i].size(), kRepeats);
    for (const Outcome& result : results[i]) expect_same_bits(plain[i], result, "thread " + std::to_string(i));
  }
}

TEST(Threads, StepsThatRunAtOnceEachWriteTheirGraph) {
  memory::start_accounting();
  constexpr int kThreads = 4;
  std::vector<nn::Sequential> models;
  std::vector<Graph> alone, at_once(kThreads);
  std::vector<at::Tensor> inputs;
  const auto graph_of = [](nn::Sequential& model, const at::Tensor& x, const std::function<void()>& meet) {
    model->zero_grad();
    Session session;
    meet();  // what a thread does outside of a step counts in all steps in progress
    {
      auto step = session.step();
      auto loss = model->forward(x).pow(2).sum();
      meet();
      loss.backward();
      loss.reset();
      meet();
      step.end();
    }
    return session.graph();
  };
  torch::manual_seed(3);
  for (int i = 0; i < kThreads; ++i) {
    models.push_back(make_model());
    inputs.push_back(torch::randn({8 << i, 16}));
    alone.push_back(graph_of(models.back(), inputs.back(), [] {}));
  }
  std::barrier everybody(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { at_once[i] = graph_of(models[i], inputs[i], [&] { everybody.arrive_and_wait(); }); });
  }
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) {
    const auto peak = [](const Graph& graph) { return graph.plain_peak_bytes() - graph.baseline_bytes; };
    EXPECT_EQ(peak(at_once[i]), peak(alone[i])) << i;
    EXPECT_EQ(at_once[i].fingerprint(), alone[i].fingerprint()) << i;
  }
}

/// What a replay brings back for one thread's backward pass is not given up for another thread's want of memory.
TEST(Threads, ShareABudgetThatIsShort) {
  memory::start_accounting();
  torch::manual_seed(3);
  constexpr int kThreads = 4;
  const auto x = torch::randn({256, 64});
  std::vector<nn::Sequential> models(kThreads);
  std::vector<Outcome> plain;
  for (auto& model : models) {
    model = nn::Sequential();
    for (int i = 0; i < 6; ++i) {
      model->push_back(nn::Linear(64, 64));
      model->push_back(nn::GELU());
      model->push_back(nn::BatchNorm1d(nn::BatchNormOptions(64).track_running_stats(false)));
    }
    model->forward(x).pow(2).mean().backward();
    plain.push_back(gradients(model));
  }
  const Budget budget = Budget::bytes(memory::current() + (int64_t{2} << 20));
  std::vector<std::thread> threads;
  std::atomic<int> completed{0}, different{0};
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        for (auto& parameter : models[i]->parameters()) {
          const torch::NoGradGuard no_grad;
          parameter.mutable_grad().zero_();
        }
        Session session({.budget = budget, .device = c10::kCPU});
        try {
          const auto step = session.step();
          models[i]->forward(x).pow(2).mean().backward();
        } catch (const BudgetError&) {
          continue;
        }
        ++completed;
        const auto parameters = models[i]->parameters();
        for (size_t p = 0; p < parameters.size(); ++p) {
          if (!same_bits(parameters[p].grad(), plain[i].tensors[p].second)) ++different;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(completed, 0);
  EXPECT_EQ(different, 0);
}

TEST(Threads, BackwardFromAnotherThread) {
  memory::start_accounting();
  torch::manual_seed(3);
  auto model = make_model();
  auto x = torch::randn({8, 16});
  const auto program = [&](bool drop, bool end_first) {
    model->zero_grad();
    std::optional<Session> session;
    std::optional<Step> step;
    at::Tensor loss;
    {
      std::optional<PolicyScope> scope;
      if (drop) {
        session.emplace(SessionOptions{.budget = {}, .device = c10::kCPU, .verify = true});
        step.emplace(session->step());
        scope.emplace(Policy::drop_all());
      }
      loss = model->forward(x).pow(2).sum();
    }
    if (end_first) step.reset();
    std::thread([&] { loss.backward(); }).join();
    return gradients(model);
  };
  const Outcome plain = program(false, false);
  expect_same_bits(plain, program(true, false), "during the step");
  expect_same_bits(plain, program(true, true), "after the step");
}

TEST(Threads, AStepEndedByAnotherThreadLeavesItsOwnFree) {
  torch::manual_seed(3);
  auto model = make_model();
  const auto x = torch::randn({8, 16});
  Session session;
  for (int i = 0; i < 3; ++i) {
    auto step = session.step();
    auto loss = model->forward(x).pow(2).sum();
    std::thread([step = std::move(step)]() mutable { step.end(); }).join();
    loss.backward();
    loss.reset();
    const int64_t before = memory::current();
    for (int plain = 0; plain < 5; ++plain) {
      auto outside = model->forward(x).pow(2).sum();
      outside.backward();
    }
    EXPECT_EQ(memory::current(), before) << "what no step is for must not be recorded";
  }
  auto scope = std::make_unique<PolicyScope>(Policy::drop_all());
  std::thread([&] { scope.reset(); }).join();
  EXPECT_NO_THROW(session.step());
}

TEST(Threads, ASessionHasOneStepAtATime) {
  Session session;
  const auto begin_elsewhere = [&] {
    std::string said;
    std::thread([&] {
      try {
        const auto other = session.step();
      } catch (const Error& error) {
        said = error.what();
      }
    }).join();
    return said;
  };
  auto step = session.step();
  EXPECT_NE(begin_elsewhere().find("on another thread"), std::string::npos);
  step.end();
  EXPECT_EQ(begin_elsewhere(), "") << "also while the ended step lives";
  EXPECT_NO_THROW(session.step());
}

TEST(Threads, TwoBackwardsOfOneGraphAtOnce) {
  memory::start_accounting();
  torch::manual_seed(3);
  auto x = torch::randn({64, 64}).requires_grad_();
  const auto program = [&](bool drop) {
    std::optional<PolicyScope> scope;
    if (drop) scope.emplace(Policy::drop_all());
    auto h = x.sin().mul(1.5).exp();
    auto a = (h * h.cos()).sum(), b = (h.tanh() * h).sum();
    scope.reset();
    Outcome outcome;
    std::vector<at::Tensor> grads(2);
    std::thread first([&] { grads[0] = torch::autograd::grad({a}, {x}, {}, true)[0]; });
    std::thread second([&] { grads[1] = torch::autograd::grad({b}, {x}, {}, true)[0]; });
    first.join();
    second.join();
    outcome.add("a", grads[0]);
    outcome.add("b", grads[1]);
    return outcome;
  };
  const Outcome plain = program(false);
  for (int i = 0; i < 30; ++i) expect_same_bits(plain, program(true), "round " + std::to_string(i));
}

TEST(Threads, AnotherThreadWritesToABufferThatAReplayReads) {
  memory::start_accounting();
  torch::manual_seed(3);
  auto x = torch::randn({8, 8}).requires_grad_();
  const auto program = [&](bool drop) -> std::optional<Outcome> {
    auto buffer = torch::ones({8, 8});
    at::Tensor loss;
    {
      std::optional<PolicyScope> scope;
      if (drop) scope.emplace(Policy::drop_all());
      loss = (x + buffer).sin().sum();
    }
    std::thread([&] { buffer.mul_(3); }).join();
    try {
      Outcome outcome;
      outcome.add("grad", torch::autograd::grad({loss}, {x})[0]);
      return outcome;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("::"), std::string::npos) << e.what();
      return std::nullopt;
    }
  };
  const auto plain = program(false);
  const auto other = program(true);
  if (other) expect_same_bits(*plain, *other, "after the write");
}

TEST(Threads, TensorsMadeByAnotherThread) {
  memory::start_accounting();
  torch::manual_seed(3);
  auto model = make_model();
  const auto program = [&](bool with_remat) {
    model->zero_grad();
    std::optional<Session> session;
    std::optional<Step> step;
    std::optional<PolicyScope> scope;
    if (with_remat) {
      session.emplace();
      step.emplace(session->step());
      scope.emplace(Policy::drop_all());
    }
    at::Tensor x;
    std::thread([&] { x = torch::full({8, 16}, 0.3F) * 2; }).join();  // as data loaders do
    auto h = model->forward(x);
    at::Tensor extra;
    std::thread([&] { extra = h.sin() * h; }).join();  // a part of the graph that nobody records
    (extra.exp() * h).sum().backward();
    return gradients(model);
  };
  expect_same_bits(program(false), program(true), "with work in other threads");
}

/// What ranks exchange as a step begins stands for another thread: it runs between the baseline and the record.
TEST(Threads, AllocateAsAStepBeginsAndFreeInIt) {
  memory::start_accounting();
  constexpr int64_t kMuch = 1 << 20;  // more than all that is alive besides
  at::Tensor others;
  bool allocates = true;
  const auto gather = [&](const std::vector<int64_t>& mine) {
    if (std::exchange(allocates, false)) others = torch::empty({kMuch}, at::kByte);
    return std::vector<std::vector<int64_t>>{mine};
  };
  Session session(
      {.budget = {}, .device = c10::kCPU, .planner = "drop-all", .ranks = Ranks{.rank = 0, .gather = gather}});
  auto model = make_model();
  const auto input = torch::randn({8, 16});
  ASSERT_LT(memory::current(), kMuch);
  for (int i = 0; i < 4; ++i) {
    auto step = session.step();
    others.reset();
    model->forward(input).pow(2).sum().backward();
    EXPECT_EQ(step.end().decided_by, i < 2 ? "online" : "drop-all") << i;
    if (i > 0) continue;
    EXPECT_THROW(session.graph(), Error);
  }
}

TEST(Threads, ARefusalSaysThatTheStepIsAnotherThreads) {
  memory::start_accounting();
  Session owner({.budget = Budget::bytes(memory::current() + (int64_t{1} << 20)), .device = c10::kCPU});
  const Step step = owner.step();
  const auto message = [] {
    try {
      torch::empty({1 << 20});
    } catch (const BudgetError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::string elsewhere;
  std::thread([&] { elsewhere = message(); }).join();
  EXPECT_NE(elsewhere.find("step 1 of the session, in progress on another thread, is out of memory"), std::string::npos)
      << elsewhere;
  EXPECT_NE(message().find("step 1 of the session is out of memory"), std::string::npos);
}

}  // namespace
}  // namespace remat::test

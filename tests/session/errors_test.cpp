// Steps that end by an exception: nothing leaks, and the next step is exact.
#include "support/compare.h"

#include <optional>

namespace remat::test {
namespace {

namespace nn = torch::nn;

struct SmallNet {
  nn::Sequential model{nn::Linear(64, 64), nn::GELU(), nn::Dropout(0.2),
                       nn::Linear(64, 64), nn::GELU(), nn::Linear(64, 64)};
  at::Tensor x = torch::randn({128, 64});

  Outcome step(uint64_t seed = 5) {
    torch::manual_seed(seed);
    model->zero_grad();
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add_module(*model);
    outcome.add_generator();
    return outcome;
  }
};

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs `failing`, which has to throw, in a step of its own; then checks memory and that the next step is exact.
void expect_recovery(SmallNet& net, const std::function<void()>& failing, const SessionOptions& options, bool drop) {
  const Outcome plain = net.step();
  net.model->zero_grad();
  Session session(options);
  const int64_t before = memory::current();
  try {
    auto step = session.step();
    std::optional<PolicyScope> scope;
    if (drop) scope.emplace(Policy::drop_all());
    failing();
    ADD_FAILURE() << "did not throw";
  } catch (const Thrown&) {
  }
  EXPECT_FALSE(session.report().completed);
  net.model->zero_grad();
  EXPECT_EQ(memory::current(), before);
  {
    auto step = session.step();
    expect_same_bits(plain, net.step(), "the step after");
  }
  EXPECT_TRUE(session.report().completed);
}

TEST(Errors, InTheMiddleOfForward) {
  memory::start_accounting();
  for (const bool drop : {false, true}) {
    SmallNet net;
    expect_recovery(
        net,
        [&] {
          auto h = net.model->forward(net.x).exp();
          throw Thrown("user code");
        },
        {}, drop);
  }
}

TEST(Errors, InsideACheckpointedFunction) {
  memory::start_accounting();
  SmallNet net;
  expect_recovery(
      net,
      [&] {
        checkpoint([&] {
          auto h = net.model->forward(net.x).exp();
          throw Thrown("user code");
        });
      },
      {}, false);
}

TEST(Errors, AnOperatorThatThrowsInForward) {
  memory::start_accounting();
  const auto program = [] {
    auto x = torch::randn({8, 8}).requires_grad_();
    auto h = at::dropout(x.sin(), 0.5, true);
    EXPECT_THROW(h.mm(torch::randn({3, 3})), c10::Error);
    EXPECT_THROW(h.narrow(0, 7, 3), c10::Error);
    EXPECT_THROW(h.add_(torch::randn({3, 3})), c10::Error);
    (h * h.exp()).sum().backward();
    Outcome outcome;
    outcome.add("grad", x.grad());
    outcome.add_generator();
    return outcome;
  };
  expect_exact(program);
}

TEST(Errors, AHookThatThrowsInBackward) {
  memory::start_accounting();
  for (const bool drop : {false, true}) {
    SmallNet net;
    expect_recovery(
        net,
        [&] {
          auto h = net.model->forward(net.x);
          auto middle = h.sin();
          middle.register_hook([](const at::Tensor&) { throw Thrown("hook"); });
          try {
            (middle * h).sum().backward();
          } catch (const std::exception& e) {
            if (std::string(e.what()).find("hook") == std::string::npos) throw;
            throw Thrown(e.what());
          }
        },
        {}, drop);
  }
}

TEST(Errors, BackwardASecondTimeWithoutKeepingTheGraph) {
  memory::start_accounting();
  SmallNet net;
  const auto program = [&] {
    auto loss = net.model->forward(net.x).pow(2).mean();
    loss.backward();
    EXPECT_ANY_THROW(loss.backward());
  };
  program();
  Session session;
  {
    auto step = session.step();
    PolicyScope scope(Policy::drop_all());
    program();
  }
  const Outcome plain = net.step();
  auto step = session.step();
  expect_same_bits(plain, net.step(), "the step after");
}

TEST(Errors, GraphsThatNeverRunBackward) {
  memory::start_accounting();
  SmallNet net;
  Session session;
  for (const bool drop : {false, true}) {
    const int64_t before = memory::current();
    for (int i = 0; i < 3; ++i) {
      auto step = session.step();
      std::optional<PolicyScope> scope;
      if (drop) scope.emplace(Policy::drop_all());
      auto unused = net.model->forward(net.x).exp();
      auto more = unused.sin() * unused;
    }
    EXPECT_EQ(memory::current(), before) << "drop " << drop;
  }
}

TEST(Errors, BudgetErrorThenASmallerBatch) {
  memory::start_accounting();
  SmallNet net;
  const auto parameters_now = [&] {
    Outcome outcome;
    for (const auto& p : net.model->parameters()) outcome.add("parameter", p);
    return outcome;
  };
  const auto train = [&] {
    torch::manual_seed(5);
    net.model->forward(net.x).pow(2).mean().backward();
  };
  const auto gradients_of = [&](const at::Tensor& x) {
    net.x = x;
    train();
    Outcome outcome;
    outcome.add_module(*net.model);
    outcome.add_generator();
    net.model->zero_grad();
    return outcome;
  };
  const auto large = net.x;
  const auto small = large.narrow(0, 0, 8).clone();
  const Outcome plain_large = gradients_of(large);
  const Outcome plain_small = gradients_of(small);
  const Outcome parameters = parameters_now();
  const int64_t baseline = memory::current();
  // Room for the gradients and a small batch's activations, not for three of a large one's.
  int64_t gradients = 0;
  for (const auto& p : net.model->parameters()) gradients += static_cast<int64_t>(p.nbytes());
  const int64_t budget = baseline + gradients + 24000;
  Session session({.budget = Budget::bytes(budget)});
  net.x = large;
  for (int i = 0; i < 3; ++i) {
    try {
      auto step = session.step();
      train();
      ADD_FAILURE() << "not refused";
    } catch (const BudgetError& e) {
      EXPECT_EQ(e.budget_bytes(), budget);
      EXPECT_GT(e.lower_bound_bytes(), baseline);
    }
    net.model->zero_grad();
    EXPECT_EQ(memory::current(), baseline);
    expect_same_bits(parameters, parameters_now(), "parameters after a refusal");
  }
  net.x = small;
  {
    auto step = session.step();
    train();
  }
  Outcome other;
  other.add_module(*net.model);
  other.add_generator();
  expect_same_bits(plain_small, other, "the smaller batch");
  net.model->zero_grad();
  expect_same_bits(plain_large, gradients_of(large), "plain after all");
}

TEST(Errors, ABudgetBelowWhatTheStepBeganWithIsNeverSaidToWork) {
  memory::start_accounting();
  constexpr int64_t kMiB = 1 << 20;
  const auto allocate = [](int64_t bytes) { return torch::zeros({bytes / 4}); };
  auto weight = torch::zeros({1024, 1024}).requires_grad_();
  const auto x = torch::zeros({1024, 1024});
  for (const int64_t freed : {int64_t{0}, 8 * kMiB}) {
    auto ballast = allocate(freed);
    const int64_t baseline = memory::current();
    Session session({.budget = Budget::bytes(baseline - freed + 9 * kMiB)});
    try {
      auto step = session.step();
      ballast.reset();
      at::Tensor loss;
      {
        PolicyScope scope(Policy::drop_all());
        loss = x.mm(weight).exp().sum();
      }
      const auto more = allocate(6 * kMiB);
      loss.backward();  // repeats the product, for which there is no room: its operands are no replay's
      ADD_FAILURE() << "not refused";
    } catch (const BudgetError& error) {
      EXPECT_GE(error.lower_bound_bytes(), baseline);
      EXPECT_GE(error.lower_bound_bytes(), baseline - freed + 6 * kMiB);
      EXPECT_LE(error.lower_bound_bytes(), error.budget_bytes());
    }
  }
}

TEST(Errors, BudgetErrorAtEveryPlace) {
  // Budgets from hopeless to ample: wherever the refusal comes, the generator and the next step are as they should be.
  memory::start_accounting();
  SmallNet net;
  const Outcome plain = net.step();
  net.model->zero_grad();
  const int64_t baseline = memory::current();
  int held = 0;
  for (int64_t extra = 10000; extra < 400000; extra += 13000) {
    Session session({.budget = Budget::bytes(baseline + extra)});
    memory::reset_peak();
    try {
      auto step = session.step();
      torch::manual_seed(5);
      auto loss = net.model->forward(net.x).pow(2).mean();
      loss.backward();
      loss.reset();
      step.end();
      ++held;
    } catch (const BudgetError&) {
    }
    EXPECT_LE(memory::peak(), baseline + extra);
    net.model->zero_grad();
    EXPECT_EQ(memory::current(), baseline);
  }
  EXPECT_GT(held, 0);
  expect_same_bits(plain, net.step(), "plain after all");
}

/// Also where the steps so far had no gradients to begin with, and this one has.
TEST(Errors, RefusalsNameABudgetThatWorks) {
  nn::Sequential model;
  for (int i = 0; i < 4; ++i) model->push_back(nn::Linear(256, 256));
  const auto train = [&](Session& session, int64_t batch) {
    Step step = session.step();
    model->forward(torch::ones({batch, 256})).mean().backward();
  };
  model->zero_grad(/*set_to_none=*/true);
  const int64_t budget = memory::current() + (3 << 20);
  Session session({.budget = Budget::bytes(budget)});
  train(session, 8);
  int64_t works = 0;
  try {
    train(session, 8 << 10);
    FAIL() << "it does not fit";
  } catch (const BudgetError& error) {
    works = error.smallest_known_bytes().value();
  }
  Session smallest({.budget = Budget::bytes(works)});
  train(smallest, 8);
  EXPECT_TRUE(smallest.report().completed);
}

TEST(Errors, RefusalsOfAFirstStepSayHowToLearnWhatItTakes) {
  SmallNet net;
  Session session({.budget = Budget::bytes(memory::current() + 100'000)});
  try {
    Step step = session.step();
    net.step();
    FAIL() << "it does not fit";
  } catch (const BudgetError& error) {
    EXPECT_NE(std::string(error.what()).find("fit_budget()"), std::string::npos) << error.what();
    EXPECT_FALSE(error.smallest_known_bytes().has_value());
  }
}

/// Where backward builds a graph of its own no plan goes as low as eviction. What is named is what works.
TEST(Errors, TheSmallestBudgetIsThatOfStepsWithoutAPlan) {
  nn::Sequential model;
  for (int i = 0; i < 6; ++i) {
    model->push_back(nn::Linear(128, 128));
    model->push_back(nn::GELU());
  }
  for (const at::Tensor& p : model->parameters()) p.mutable_grad() = at::zeros_like(p);
  const at::Tensor x = torch::randn({256, 128}).requires_grad_();
  const auto train = [&](Session& session) {
    Step step = session.step();
    const auto slope = torch::autograd::grad({model->forward(x).pow(2).sum()}, {x}, {}, true, /*create_graph=*/true);
    slope[0].pow(2).mean().backward();
  };
  x.mutable_grad() = at::zeros_like(x);
  Session recorded;
  train(recorded);
  const int64_t smallest = recorded.min_budget_bytes().value();
  EXPECT_LT(smallest, floor_of(recorded.graph()).peak_bytes);
  const int64_t budget = smallest + recorded.report().plain_activation_peak_bytes() / 20;
  Session session({.budget = Budget::bytes(budget)});
  for (int step = 0; step < 3; ++step) {
    train(session);
    EXPECT_LE(session.report().peak_bytes, budget);
  }
}

}  // namespace
}  // namespace remat::test

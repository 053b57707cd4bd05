// Steps whose budget is a share of what is not known yet, and what refusals say.
#include "session/online_eviction.h"

#include <optional>

#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

struct DeepNet {
  nn::Sequential model;
  at::Tensor x;

  explicit DeepNet(int64_t layers = 8, int64_t width = 64) {
    memory::start_accounting();
    torch::manual_seed(3);
    for (int64_t i = 0; i < layers; ++i) {
      model->push_back(nn::Linear(width, 2 * width));
      model->push_back(nn::GELU());
      model->push_back(nn::Linear(2 * width, width));
      model->push_back(nn::Dropout(0.1));
    }
    x = torch::randn({512, width});
  }
  const StepReport& step(Session& session) {
    torch::manual_seed(5);
    Step step = session.step();
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    loss.reset();
    step.end();
    return session.report();
  }
  Outcome outcome() const {
    Outcome outcome;
    outcome.add_module(*model);
    outcome.add_generator();
    return outcome;
  }
};

TEST(Shares, HoldInTheFirstStep) {
  DeepNet net;
  Session free;
  net.step(free);  // counts what is older
  const Outcome expected = net.outcome();
  net.model->zero_grad();
  const StepReport plain = net.step(free);
  for (const int share : {80, 60, 40}) {
    net.model->zero_grad();
    Session session({.budget = Budget::percent(share)});
    const StepReport first = net.step(session);
    EXPECT_LE(first.activation_peak_bytes(), plain.plain_activation_peak_bytes() * share / 100) << share;
    EXPECT_LE(first.peak_bytes, first.budget_bytes) << share;
    EXPECT_GT(first.values_dropped, 0) << share;
    expect_same_bits(expected, net.outcome(), std::to_string(share) + " %");
  }
}

TEST(Shares, AreMeasuredInAStepThatDrops) {
  DeepNet net;
  Session free;
  net.step(free);
  net.model->zero_grad();
  const StepReport plain = net.step(free);
  for (const int share : {100, 50, 5}) {
    net.model->zero_grad();
    Session session({.budget = Budget::percent(share)});
    EXPECT_EQ(net.step(session).plain_activation_peak_bytes(), plain.plain_activation_peak_bytes()) << share;
    EXPECT_EQ(session.graph().fingerprint(), free.graph().fingerprint()) << share;
  }
}

TEST(Shares, ThatCannotHoldGiveWayInTheFirstStepAndAreRefusedInTheSecond) {
  DeepNet net;
  Session free;
  net.step(free);
  net.model->zero_grad();
  Session session({.budget = Budget::percent(0.5)});
  const StepReport first = net.step(session);
  EXPECT_TRUE(first.completed);
  EXPECT_LT(first.activation_peak_bytes(), first.plain_activation_peak_bytes() / 2);
  EXPECT_LE(first.peak_bytes, first.budget_bytes);
  EXPECT_THROW(net.step(session), BudgetError);
}

/// Its parameters are met by the first step that reads them.
TEST(Shares, LeaveOutWhatIsOlderThanTheAccount) {
  const auto weight = torch::ones({256, 256});  // 256 KiB
  nn::Sequential model;
  for (int i = 0; i < 4; ++i) model->push_back(nn::Linear(256, 256));
  const auto train = [&](Session& session) {
    Step step = session.step();
    auto h = torch::ones({512, 256});
    for (int i = 0; i < 4; ++i) h = model->ptr<nn::LinearImpl>(static_cast<size_t>(i))->forward(h).tanh();
    h.mean().backward();
    return step.end();
  };
  Session session({.budget = Budget::percent(100)});
  EXPECT_EQ(train(session).values_dropped, 0);
}

// What refusals say.

/// Trains with AdamW from a budget of one byte on, with the number of each error; returns how many there were. The
/// budget in the end is `budget`.
template <class Loss>
int rounds_of(torch::optim::Optimizer& optimizer, bool set_to_none, int micro_batches, const Loss& loss,
              int64_t& budget) {
  int rounds = 0;
  budget = 1;
  std::optional<Session> session;
  session.emplace(SessionOptions{.budget = Budget::bytes(budget)});
  for (int update = 0; update < 3; ++update) {
    for (int batch = 0; batch < micro_batches; ++batch) {
      try {
        Step step = session->step();
        loss().backward();
      } catch (const BudgetError& error) {
        EXPECT_EQ(error.budget_bytes(), budget);
        EXPECT_GT(error.needed_bytes(), budget);
        EXPECT_GE(error.needed_bytes(), error.lower_bound_bytes());
        EXPECT_NE(std::string(error.what()).find(std::to_string(error.needed_bytes())), std::string::npos);
        if (++rounds == 100) return rounds;
        budget = error.needed_bytes();
        session.emplace(SessionOptions{.budget = Budget::bytes(budget)});
        optimizer.zero_grad(set_to_none);
        batch = -1;
      }
    }
    optimizer.step();
    optimizer.zero_grad(set_to_none);
  }
  return rounds;
}

class BudgetErrors : public testing::TestWithParam<std::tuple<bool, bool, int>> {};

TEST_P(BudgetErrors, NameTheBudgetToTryNext) {
  const auto [adam, set_to_none, micro_batches] = GetParam();
  DeepNet net;
  const auto parameters = net.model->parameters();
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (adam) {
    optimizer = std::make_unique<torch::optim::AdamW>(parameters);
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(parameters, 0.01);
  }
  const auto loss = [&] { return net.model->forward(net.x).pow(2).mean(); };
  int64_t budget = 0;
  EXPECT_LE(rounds_of(*optimizer, set_to_none, micro_batches, loss, budget), 25);
  // No more than a few percent too much: less is refused.
  Session session;
  Step step = session.step();
  loss().backward();
  const StepReport plain = step.end();
  EXPECT_LT(budget - plain.baseline_bytes, plain.plain_activation_peak_bytes());
}

INSTANTIATE_TEST_SUITE_P(Loops, BudgetErrors,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Values(1, 2)));

/// The optimizer's state came after the first step, and is there from the second on.
TEST(BudgetErrors, CountWhatCameToStay) {
  DeepNet net;
  torch::optim::AdamW optimizer(net.model->parameters());
  Session free;
  net.step(free);
  net.model->zero_grad();
  const int64_t before = memory::current();
  const int64_t margin = free.report().plain_activation_peak_bytes() / 10;  // for the times measured in a step
  Session session({.budget = Budget::bytes(free.min_budget_bytes().value() + margin)});
  net.step(session);
  optimizer.step();
  net.model->zero_grad();
  const int64_t state = memory::current() - before;
  EXPECT_GT(state, 0);
  EXPECT_NEAR(session.min_budget_bytes().value(), free.min_budget_bytes().value(), margin);
  int64_t needed = 0;
  try {
    net.step(session);
    FAIL() << "it does not fit";
  } catch (const BudgetError& error) {
    needed = error.needed_bytes();
    EXPECT_GT(needed, error.budget_bytes());
    EXPECT_LE(needed, session.report().baseline_bytes + session.report().plain_activation_peak_bytes());
  }
  net.model->zero_grad();
  Session again({.budget = Budget::bytes(needed)});
  for (int i = 0; i < 3; ++i) {
    EXPECT_NO_THROW(net.step(again)) << i;
    net.model->zero_grad();
  }
}

/// States of generators are tensors of remat's own.
TEST(Eviction, LetsGoOfGeneratorStatesThatNothingAsksFor) {
  memory::start_accounting();
  const auto x = torch::ones({64, 64}).requires_grad_();
  Session session({.budget = Budget::bytes(memory::current() + (1 << 20)), .planner = "online"});
  Step step = session.step();
  const int64_t before = memory::current();
  for (int i = 0; i < 20; ++i) torch::dropout(x, 0.5, true).sum().backward();
  x.mutable_grad() = at::Tensor();
  const int64_t room = before + (1 << 20) - memory::current();
  EXPECT_LT(room, 1 << 20) << "no states are held: the test shows nothing";
  EXPECT_NO_THROW(torch::empty({1 << 20}, at::kByte));
}

/// What a refusal lets go of at last: states of operators whose results are in the user's hands, which nothing can ask
/// for once backward is over.
TEST(Eviction, LetsGoOfGeneratorStatesBeforeItRefuses) {
  memory::start_accounting();
  const auto leaf = torch::ones({64, 64}).requires_grad_();
  const int64_t begin = memory::current();
  Session session({.budget = Budget::bytes(begin + (1 << 20)), .planner = "online"});
  Step step = session.step();
  at::Tensor y = leaf;
  for (int i = 0; i < 20; ++i) y = torch::dropout(y, 0.5, true);
  const at::Tensor loss = y.sum();
  loss.backward();
  const auto in_hands = static_cast<int64_t>(y.nbytes() + loss.nbytes() + leaf.grad().nbytes());
  constexpr int64_t kStateBytes = 5000;
  ASSERT_GT(memory::current() - begin, in_hands + 20 * kStateBytes) << "no states are held: the test shows nothing";
  EXPECT_NO_THROW(torch::empty({(1 << 20) - in_hands - 1024}, at::kByte));
}

/// torch::nn::Linear reads a transposed view of its weight.
TEST(Parameters, OfProductsAreCounted) {
  memory::start_accounting();
  nn::Linear layer(256, 256);
  Session session;
  const auto train = [&] {
    Step step = session.step();
    layer->forward(torch::ones({8, 256})).mean().backward();
  };
  train();
  const int64_t bytes = static_cast<int64_t>(layer->weight.nbytes() + layer->bias.nbytes());
  EXPECT_EQ(session.graph().parameter_bytes, bytes);
  EXPECT_EQ(session.graph().gradient_bytes, 0);
  train();
  EXPECT_EQ(session.graph().gradient_bytes, bytes);
  EXPECT_EQ(floor_of(session.graph()).parameter_bytes, bytes);
  const auto input = torch::ones({512, 256});
  Session small({.budget = Budget::bytes(memory::current() + 1024)});
  try {
    Step step = small.step();
    layer->forward(input);
    FAIL() << "it does not fit";
  } catch (const BudgetError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(format_bytes(bytes) + " of parameters read so far, " + format_bytes(bytes) + " of their"),
              std::string::npos)
        << what;
  }
}

}  // namespace
}  // namespace remat::test

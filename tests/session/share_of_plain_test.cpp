// Budgets that are a share of what plain takes: of the largest step so far, or of a step's own where it takes more.
#include <regex>

#include "support/compare.h"

#include "session/budgeted_net.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

TEST(ShareOfPlain, AStepThatDoesNothingIsNoMeasureForAShare) {
  Net net;
  Session session({.budget = Budget::percent(60)});
  session.step().end();
  EXPECT_FALSE(session.budget_bytes());
  const auto run = [&] {
    net.model->zero_grad();
    auto step = session.step();
    net.model->forward(net.x).pow(2).mean().backward();
    return step.end();
  };
  run();
  ASSERT_TRUE(session.budget_bytes());
  EXPECT_GT(run().values_dropped, 0);
}

/// On the first `rows` rows of its input.
StepReport step_of(Session& session, Net& net, int64_t rows) {
  net.model->zero_grad();
  auto step = session.step();
  net.model->forward(net.x.narrow(0, 0, rows)).pow(2).mean().backward();
  return step.end();
}

/// What a share leaves above the baseline.
int64_t share_bytes(const StepReport& report, int percent) {
  return report.plain_activation_peak_bytes() * percent / 100;
}
int64_t limit_above_baseline(const StepReport& report) { return report.budget_bytes - report.baseline_bytes; }

TEST(ShareOfPlain, ALargerStepHasTheShareOfItsOwnPeak) {
  for (const char* const planner : {"auto", "online"}) {
    Net net;
    Session session({.budget = Budget::percent(90), .planner = planner});
    const auto run = [&](int64_t rows) { return step_of(session, net, rows); };
    const int64_t small = share_bytes(run(16), 90);
    const StepReport larger = run(256);
    EXPECT_GT(share_bytes(larger, 90), 4 * small) << planner;
    EXPECT_EQ(limit_above_baseline(larger), share_bytes(larger, 90)) << planner;
    EXPECT_LE(larger.peak_bytes, larger.budget_bytes) << planner;
    EXPECT_GT(larger.values_dropped, 0) << planner;
    for (const int64_t rows : {16, 128, 256}) {
      const StepReport report = run(rows);
      EXPECT_EQ(limit_above_baseline(report), share_bytes(larger, 90)) << planner << ", " << rows;
      EXPECT_LE(report.peak_bytes, report.budget_bytes) << planner << ", " << rows;
    }
  }
}

TEST(ShareOfPlain, ALargerStepHasTheBitsThatItHasInPlain) {
  Net net, same;
  Session plain, session({.budget = Budget::percent(60)});
  for (const int64_t rows : {96, 128, 112, 256, 255}) {  // gradients are part of what each takes
    torch::manual_seed(static_cast<uint64_t>(rows));
    step_of(plain, same, rows);
    const Outcome expected = same.outcome();
    torch::manual_seed(static_cast<uint64_t>(rows));
    step_of(session, net, rows);
    expect_same_bits(expected, net.outcome(), std::to_string(rows) + " rows");
  }
}

// Its first operator may pass the budget before it is known to take more than the steps before.
TEST(ShareOfPlain, ALargerStepOfAnotherKindHasTheShareOfItsOwnPeak) {
  Session session({.budget = Budget::percent(40)});
  const auto run = [&](int64_t size, bool sines) {
    const auto x = torch::randn({size}).requires_grad_();
    auto step = session.step();
    at::Tensor h = x;
    for (int i = 0; i < 20; ++i) h = sines ? (h * 1.01).sin().tanh() : (h * 1.01).exp().tanh();
    h.sum().backward();
    return step.end();
  };
  for (int i = 0; i < 3; ++i) run(25600, false);
  for (int i = 0; i < 3; ++i) {
    const StepReport report = run(160000, true);
    EXPECT_EQ(limit_above_baseline(report), share_bytes(report, 40)) << i;
    EXPECT_LE(report.peak_bytes, report.budget_bytes) << i;
  }
  EXPECT_TRUE(run(25600, false).completed);
}

TEST(ShareOfPlain, AMuchLargerStepIsNotRefusedWhereverMemoryRunsShort) {
  nn::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model->push_back(nn::Linear(64, 64));
    model->push_back(nn::GELU());
  }
  for (const at::Tensor& p : model->parameters()) p.mutable_grad() = at::zeros_like(p);
  for (const int64_t rows : {64, 256, 4096}) {  // late in the forward pass, early, and in its first operator
    for (const char* const planner : {"auto", "online"}) {
      Session session({.budget = Budget::percent(50), .planner = planner});
      const auto run = [&](int64_t count) {
        model->zero_grad(/*set_to_none=*/false);
        const auto x = torch::ones({count, 64});
        auto step = session.step();
        model->forward(x).pow(2).mean().backward();
        return step.end();
      };
      for (int i = 0; i < 3; ++i) run(16);
      for (int i = 0; i < 2; ++i) {
        const StepReport report = run(rows);
        EXPECT_EQ(limit_above_baseline(report), share_bytes(report, 50)) << rows << ", " << planner;
        EXPECT_LE(report.peak_bytes, report.budget_bytes) << rows << ", " << planner;
      }
    }
  }
}

TEST(ShareOfPlain, AShareThatIsTooSmallIsRefusedOnceItsStepsAreKnown) {
  for (const char* const planner : {"auto", "online"}) {
    Net net;
    Session session({.budget = Budget::percent(1), .planner = planner});
    step_of(session, net, 128);
    for (const int64_t rows : {128, 128, 64}) {
      try {
        step_of(session, net, rows);
        ADD_FAILURE() << planner << ", " << rows;
      } catch (const BudgetError& error) {
        const std::string what = error.what();
        EXPECT_NE(what.find(", too small a share, 1%, of the "), std::string::npos) << what;
        EXPECT_EQ(what.find("try it again"), std::string::npos) << what;
        EXPECT_TRUE(error.needed_percent()) << what;
      }
    }
    EXPECT_TRUE(session.budget_bytes()) << planner;
    // A larger one than those is as the first was: nothing says yet what its share is.
    EXPECT_TRUE(step_of(session, net, 256).completed) << planner;
  }
}

// Nothing of them could be dropped, so that no share of theirs can hold.
TEST(ShareOfPlain, EvaluationsAreNoMeasureForAShareAndNotRefused) {
  Net net;
  Session session({.budget = Budget::percent(50)});
  const auto evaluate = [&](int64_t rows) {
    const torch::NoGradGuard no_grad;
    auto step = session.step();
    const auto h = net.x.repeat({rows / 256, 1});
    auto result = (h + 1).sin();
    return step.end();
  };
  EXPECT_TRUE(evaluate(256).completed);
  EXPECT_FALSE(session.budget_bytes());
  for (const at::Tensor& p : net.model->parameters()) p.mutable_grad() = at::zeros_like(p);
  const auto train = [&] {
    net.model->zero_grad(/*set_to_none=*/false);
    auto step = session.step();
    net.model->forward(net.x).pow(2).mean().backward();
    return step.end();
  };
  const StepReport first = train();
  for (const int64_t rows :
       {2048, 2560, 2048, 2560, 2560}) {  // more than half of what training takes, and less than all
    const StepReport report = evaluate(rows);
    EXPECT_GT(report.plain_activation_peak_bytes(), first.plain_activation_peak_bytes() / 2) << rows;
    EXPECT_LT(report.plain_activation_peak_bytes(), first.plain_activation_peak_bytes()) << rows;
    EXPECT_LE(report.peak_bytes, report.budget_bytes) << rows;
    EXPECT_EQ(limit_above_baseline(train()), share_bytes(first, 50)) << rows;
  }
}

TEST(ShareOfPlain, AShareCountsInputsFromElsewhereThoughTheBaselineGrows) {
  Net net;
  std::vector<float> values(static_cast<size_t>(net.x.numel()), 0.5F);
  Session session({.budget = Budget::percent(100)});
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 4; ++i) {
    net.model->zero_grad();
    auto step = session.step();
    const auto x = torch::from_blob(values.data(), net.x.sizes(), [](void*) {});
    net.model->forward(x).pow(2).mean().backward();
    kept.push_back(torch::ones({1}));
    step.end();
    if (i == 0) continue;  // its limit follows plain
    EXPECT_GE(session.report().budget_bytes, session.report().plain_peak_bytes) << i;
  }
}

TEST(ShareOfPlain, RefusalsOfASharesStepNameAShareThatWorks) {
  Net net;
  const auto run = [&](Session& session) {
    net.model->zero_grad();
    auto step = session.step();
    net.model->forward(net.x).pow(2).mean().backward();
  };
  Session session({.budget = Budget::percent(1)});
  run(session);
  double share = 0;
  try {
    run(session);
    ADD_FAILURE() << "that cannot fit";
  } catch (const BudgetError& error) {
    const std::string what = error.what();
    std::smatch found;
    ASSERT_TRUE(std::regex_search(what, found, std::regex(R"(bytes\) or (\d+)%, )"))) << what;
    share = std::stod(found[1]);
    EXPECT_EQ(error.needed_percent(), share);
  }
  Session enough({.budget = Budget::percent(share)});
  for (int step = 0; step < 4; ++step) run(enough);
}

}  // namespace
}  // namespace remat::test

// Budgets: the measured peak never passes, bits stay equal, infeasible budgets are refused.
#include <remat/extension.h>

#include "support/compare.h"

#include "session/budgeted_net.h"

#include "observe/recorder.h"

namespace remat::test {
namespace {

TEST(Session, ReportsPlainsPeakExactly) {
  memory::start_accounting();
  Net net;
  net.run_within({});  // adopts what is older
  net.model->zero_grad();
  memory::reset_peak();
  {
    torch::manual_seed(5);
    auto loss = net.model->forward(net.x).pow(2).mean();
    loss.backward();
  }
  const int64_t plain = memory::peak();
  const StepReport report = net.run_within({});
  EXPECT_LE(report.peak_bytes, plain + report.record_bytes);
  EXPECT_EQ(report.plain_peak_bytes, plain);
}

TEST(Session, KeepsTheMeasuredPeakUnderEveryBudget) {
  Net net;
  net.run_within({});
  const Outcome expected = net.outcome();  // its copies are part of the baseline from here on
  const StepReport plain = net.run_within({});
  for (const int percent : {90, 70, 50, 40, 30}) {
    const int64_t budget = plain.baseline_bytes + plain.activation_peak_bytes() * percent / 100;
    const StepReport report = net.run_within(Budget::bytes(budget));
    EXPECT_LE(report.peak_bytes, budget);
    expect_same_bits(expected, net.outcome(), std::to_string(percent) + " %");
    EXPECT_EQ(report.plain_peak_bytes, plain.plain_peak_bytes);
    EXPECT_GT(report.operators_replayed + report.values_packed, 0);
  }
}

TEST(Session, KeepsTheMeasuredPeakDownToTheSmallestFeasibleBudget) {
  Net net;
  net.run_within({});
  const Outcome expected = net.outcome();  // its copies are part of the baseline from here on
  const StepReport plain = net.run_within({});
  int64_t refused = plain.baseline_bytes, held = plain.peak_bytes, lower_bound = 0;
  while (held - refused > 1024) {
    const int64_t budget = (refused + held) / 2;
    try {
      const StepReport report = net.run_within(Budget::bytes(budget));
      EXPECT_LE(report.peak_bytes, budget);
      expect_same_bits(expected, net.outcome(), std::to_string(budget) + " bytes");
      held = budget;
    } catch (const BudgetError& e) {
      lower_bound = std::max(lower_bound, e.lower_bound_bytes());
      refused = budget;
    }
  }
  EXPECT_LT(held - plain.baseline_bytes, plain.activation_peak_bytes() * 30 / 100);
  EXPECT_LE(lower_bound, held);
  EXPECT_GT(lower_bound, plain.baseline_bytes);
}

TEST(Session, ReleasesEverythingWhenTheStepEnds) {
  Net net;
  net.run_within({});
  net.model->zero_grad();
  const int64_t before = memory::current();
  net.run_within({});
  net.model->zero_grad();
  EXPECT_EQ(memory::current(), before);
}

TEST(Session, MovedFromIsAnError) {
  Session session;
  Session other = std::move(session);
  EXPECT_THROW(static_cast<void>(session.step()), Error);
  EXPECT_THROW(session.report(), Error);
  EXPECT_THROW(session.graph(), Error);
  Step step = other.step();
  Step moved = std::move(step);
  EXPECT_THROW(step.end(), Error);
  EXPECT_NO_THROW(moved.end());
}

TEST(Session, TheSmallestBudgetCountsAResultThatIsKept) {
  Net net;
  at::Tensor kept;
  const auto run = [&](Session& session) {
    net.model->zero_grad();
    auto step = session.step();
    auto result = net.model->forward(net.x);
    result.pow(2).mean().backward();
    step.end();
    kept = torch::cat({result, result, result, result}).detach();
  };
  Session first;
  run(first);
  EXPECT_TRUE(kept.defined());
  const int64_t smallest = first.min_budget_bytes().value();
  const int64_t share = first.report().plain_activation_peak_bytes() / 8;  // what times may change
  Session session({.budget = Budget::bytes(smallest + share)});
  run(session);
  EXPECT_LE(session.report().peak_bytes, smallest + share);
  EXPECT_GT(session.report().baseline_bytes + share, first.report().baseline_bytes + kept.nbytes());
}

TEST(Session, GraphsAndPlansAreTheCallersOwn) {
  Net net;
  Session session({.budget = Budget::percent(60)});
  const auto run = [&](int64_t rows) {
    net.model->zero_grad();
    auto step = session.step();
    net.model->forward(net.x.narrow(0, 0, rows)).pow(2).mean().backward();
  };
  for (int i = 0; i < 4; ++i) run(128);
  const auto& graph = session.graph();
  const auto& plan = session.plan();
  const Graph same_graph = graph;
  const Plan same_plan = plan;
  for (const int64_t rows : {127, 126, 125, 124, 123, 122, 121, 120, 120, 120, 120, 120}) run(rows);
  EXPECT_EQ(graph, same_graph);
  EXPECT_EQ(plan, same_plan);
}

TEST(Session, RefusalsByTheDevicesLimitNameIt) {
  Net net;
  net.run_within({});
  net.model->zero_grad();
  memory::set_limit(memory::current() + 100'000);
  EXPECT_EQ(Session({.budget = Budget::bytes(int64_t{1} << 40), .device = c10::kCPU}).budget_bytes(), memory::limit());
  for (const Budget& budget : {Budget(), Budget::bytes(int64_t{1} << 40)}) {
    try {
      Session session({.budget = budget});
      auto step = session.step();
      net.model->forward(net.x);
      ADD_FAILURE() << "that cannot fit";
    } catch (const BudgetError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("the device's limit, which set_limit() or ulimit may have lowered, is "), std::string::npos)
          << what;
    }
  }
  memory::set_limit(std::nullopt);
}

TEST(Session, RefusalsBesideAStepOfAnotherSessionNameItsLimit) {
  Net net;
  Session small({.budget = Budget::bytes(memory::current() + 100'000)});
  Step step = small.step();
  const extension::CalledStep called(step);
  called.enter_forward([] { return false; });  // as a wrapped model's, whose backward is still to come
  called.leave_forward();
  std::string what;
  std::thread([&] {
    try {
      Session session({.budget = Budget::percent(60)});
      const Step ours = session.step();
      net.model->forward(net.x);
    } catch (const BudgetError& error) {
      what = error.what();
    }
  }).join();
  EXPECT_NE(what.find("the smallest limit of the steps in progress, other sessions' too, is "), std::string::npos)
      << what;
  EXPECT_NE(what.find("run one step at a time, or give each session as bytes "), std::string::npos) << what;
}

TEST(Session, WhatOthersAllocateWhileAStepIsPlannedCounts) {
  Net net;
  at::Tensor others;
  const int64_t budget = memory::current() + (1 << 20);
  const Ranks ranks{.rank = 0, .gather = [&](const std::vector<int64_t>& mine) {
                      if (!others.defined()) others = torch::empty({1 << 21}, torch::kByte);
                      return std::vector<std::vector<int64_t>>{mine};
                    }};
  Session session({.budget = Budget::bytes(budget), .ranks = ranks});
  EXPECT_THROW(session.step(), BudgetError);
  others = torch::empty({1}, torch::kByte);
  auto step = session.step();
  net.model->forward(net.x.narrow(0, 0, 1));
}

TEST(Session, RefusalsSayWhatWasThereBefore) {
  Net net;
  net.run_within({});
  Session session({.budget = Budget::bytes(memory::current() + 100'000)});
  try {
    auto step = session.step();
    net.model->forward(net.x);
    FAIL() << "that cannot fit";
  } catch (const BudgetError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(" of it since before the step ("), std::string::npos) << what;
    EXPECT_NE(what.find(" of parameters read so far, "), std::string::npos) << what;
  }
}

TEST(Session, RefusalsCountWhatIsOlderThanTheAccountAsThereBefore) {
  std::vector<float> numbers(1 << 20);
  const at::Tensor weight = torch::from_blob(numbers.data(), {1024, 1024}).requires_grad_();
  const at::Tensor x = torch::ones({8, 1024});
  const int64_t before = memory::current();
  Session session({.budget = Budget::bytes(before + (4 << 20) + 1000)});
  try {
    auto step = session.step();
    x.mm(weight);
    FAIL() << "that cannot fit";
  } catch (const BudgetError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(", " + format_bytes(before + (4 << 20)) + " of it since before the step"), std::string::npos)
        << what;
    EXPECT_TRUE(what.ends_with("; docs/out-of-memory.md says what else makes room")) << what;
  }
}

}  // namespace
}  // namespace remat::test

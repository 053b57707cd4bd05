// Sessions whose budgets change between steps: by set_budget(), and by the memory that is left.
#include <thread>

#include <remat/memory.h>
#include <remat/planner.h>

#include "planned_loop.h"
#include "support/compare.h"
#include "support/system_files.h"

namespace remat::test {
namespace {

/// Takes a step: plain's bits within the budget, planned from the graphs that are known.
StepReport planned_step(Loop& loop, Session& session) {
  StepReport report = loop.in(session);
  EXPECT_EQ(report.decided_by, "auto") << report.decision_reason;
  EXPECT_GT(report.planned_peak_bytes, 0);
  EXPECT_LE(report.planned_peak_bytes, report.budget_bytes);
  return report;
}

TEST(ChangedBudget, HoldsFromTheNextStepOnByAPlanOfTheSameGraph) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 80)});
  for (int i = 0; i < 2; ++i) loop.in(session);
  const uint64_t graph = session.graph().fingerprint();
  int64_t before = session.report().budget_bytes;
  for (const int percent : {50, 90, 35, 50}) {
    const Budget budget = share_of(plain, percent);
    session.set_budget(budget);
    EXPECT_EQ(session.budget_bytes(), budget.byte_count());
    const StepReport report = planned_step(loop, session);
    EXPECT_EQ(report.budget_bytes, budget.byte_count());
    EXPECT_EQ(report.budget_reason, "set_budget(): was " + format_bytes(before));
    EXPECT_EQ(planned_step(loop, session).budget_reason, "");
    EXPECT_EQ(session.plan().graph_fingerprint, graph);
    before = budget.byte_count();
  }
}

TEST(ChangedBudget, ThatIsLargerMakesStepsDropLess) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 35)});
  for (int i = 0; i < 2; ++i) loop.in(session);
  const int64_t dropped = session.report().values_dropped;
  session.set_budget(share_of(plain, 80));
  EXPECT_LT(planned_step(loop, session).values_dropped, dropped);
  session.set_budget({});
  EXPECT_EQ(loop.in(session).values_dropped, 0);
  EXPECT_EQ(session.report().budget_bytes, memory::limit());
}

TEST(ChangedBudget, ThatIsTooSmallIsRefusedWithTheSmallestThatWorks) {
  for (const char* const planner : {"auto", "revolve"}) {
    Loop loop;
    const StepReport plain = loop.measure();
    Session session({.budget = share_of(plain, 70), .planner = planner, .name = "the loop"});
    for (int i = 0; i < 3; ++i) loop.in(session);
    const int64_t before = session.report().budget_bytes;
    int64_t needed = 0;
    try {
      session.set_budget(Budget::bytes(session.report().baseline_bytes + 1000));
      FAIL() << "it was not refused";
    } catch (const BudgetError& error) {
      needed = error.needed_bytes();
      EXPECT_EQ(error.budget_bytes(), session.report().baseline_bytes + 1000);
      EXPECT_LE(floor_of(session.graph()).peak_bytes, error.lower_bound_bytes());
      EXPECT_LE(error.lower_bound_bytes(), needed);
      EXPECT_NE(std::string(error.what()).find("the loop"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(format_bytes(before) + ", stays in force"), std::string::npos);
    }
    EXPECT_THROW(session.set_budget(Budget::bytes(1)), BudgetError);
    const StepReport after = loop.in(session);
    EXPECT_EQ(after.budget_bytes, before);
    EXPECT_EQ(after.budget_reason, "");
    EXPECT_THROW(session.set_budget(Budget::bytes(needed - 1)), BudgetError);
    session.set_budget(Budget::bytes(needed));
    EXPECT_EQ(loop.in(session).budget_bytes, needed);
    EXPECT_LT(needed, before);
  }
}

TEST(ChangedBudget, IsNotChangedWithinAStep) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 70)});
  loop.in(session);
  {
    auto step = session.step();
    EXPECT_THROW(session.set_budget(share_of(plain, 50)), Error);
    std::thread([&] { EXPECT_THROW(session.set_budget(share_of(plain, 50)), Error); }).join();
  }
  EXPECT_EQ(session.budget_bytes(), share_of(plain, 70).byte_count());
  std::thread([&] { session.set_budget(share_of(plain, 50)); }).join();
  EXPECT_EQ(loop.in(session).budget_bytes, share_of(plain, 50).byte_count());
  {
    Session smaller({.budget = Budget::bytes(memory::current() + 50000)});
    auto step = smaller.step();
    session.set_budget(share_of(plain, 60));  // another session's step is none of it
  }
  Session other({.device = c10::kMeta});
  EXPECT_THROW(other.set_budget(Budget::percent(40)), Error);
  EXPECT_THROW(other.set_budget(Budget::pressure()), Error);
}

TEST(ChangedBudget, MayBeAShareOfTheLargestStepSoFar) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 80)});
  for (int i = 0; i < 3; ++i) loop.in(session);
  session.set_budget(Budget::percent(40));
  const StepReport report = planned_step(loop, session);
  EXPECT_LE(report.activation_peak_bytes(), report.plain_activation_peak_bytes() * 41 / 100);
  try {
    session.set_budget(Budget::percent(1));
    FAIL() << "it was not refused";
  } catch (const BudgetError& error) {
    ASSERT_TRUE(error.needed_percent());
    session.set_budget(Budget::percent(*error.needed_percent()));
    const double share = *error.needed_percent() / 100;
    const StepReport smallest = loop.in(session);
    EXPECT_LE(static_cast<double>(smallest.activation_peak_bytes()),
              share * static_cast<double>(smallest.plain_activation_peak_bytes()));
  }
}

TEST(ChangedBudget, IsFoundToBeTooSmallByTheNextStepWhereNothingIsKnown) {
  Loop loop;
  for (const char* const planner : {"auto", "online"}) {
    Session session({.planner = planner});
    const auto held = torch::ones({100});
    session.set_budget(Budget::bytes(memory::current() + 1000));
    EXPECT_THROW(loop.in(session), BudgetError);
    EXPECT_THROW(session.set_budget(Budget::bytes(1)), BudgetError) << "what is alive does not fit";
    session.set_budget({});
    EXPECT_TRUE(loop.in(session).completed);
  }
}

TEST(ChangedBudget, ChangesBetweenMicroBatchesToo) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 80)});
  const auto train = [&](int64_t budgets) {
    loop.layers->zero_grad();
    torch::manual_seed(7);
    for (int i = 0; i < 4; ++i) {
      if (budgets > 0) session.set_budget(share_of(plain, i % 2 == 0 ? 90 : 50));
      std::optional<Step> step;
      if (budgets >= 0) step.emplace(session.step());
      at::Tensor h = torch::randn({loop.batch, Loop::kWidth});
      for (size_t l = 0; l < loop.depth; ++l) {
        h = torch::dropout(torch::gelu(loop.layers->ptr<torch::nn::LinearImpl>(l)->forward(h)), 0.1, true);
      }
      h.pow(2).mean().backward();
      h.reset();
      if (!step) continue;
      const StepReport& report = step->end();
      EXPECT_LE(report.peak_bytes, report.budget_bytes) << i;
      EXPECT_TRUE(budgets == 0 || report.budget_bytes == share_of(plain, i % 2 == 0 ? 90 : 50).byte_count()) << i;
    }
    Outcome outcome;
    outcome.add_module(*loop.layers);
    outcome.add_generator();
    return outcome;
  };
  const Outcome without = train(-1);
  for (int i = 0; i < 4; ++i) expect_same_bits(without, train(i > 0 ? 1 : 0), "round " + std::to_string(i));
}

/// A step that begins with no freed blocks: they count as the process's own.
StepReport step_without_cache(Loop& loop, Session& session) {
  const Outcome plain = loop.step();
  memory::release_cached();
  return run_in(session, plain, [&] { return loop.step(); });
}

TEST(BudgetByPressure, FollowsWhatIsLeftWithTheSameBits) {
  SystemFiles files;
  files.use();
  files.leave(int64_t{1} << 32);
  Loop loop;
  const StepReport plain = loop.measure();
  const int64_t most = plain.plain_peak_bytes;
  Session session({.budget = Budget::pressure()});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loop.in(session).values_dropped, 0);
  EXPECT_EQ(session.report().available_bytes, int64_t{1} << 32);
  EXPECT_GT(session.budget_bytes(), int64_t{3} << 30);

  // Another program takes memory.
  memory::release_cached();
  files.leave(most * 8 / 10 - memory::current());
  StepReport report = step_without_cache(loop, session);
  EXPECT_EQ(report.decided_by, "auto") << report.decision_reason;
  EXPECT_LE(report.budget_bytes, (report.available_bytes + report.baseline_bytes) * 5 / 6 + 1);
  EXPECT_GT(report.values_dropped, 0);
  EXPECT_EQ(report.budget_reason.find("lowered from "), 0) << report.budget_reason;
  EXPECT_NE(report.budget_reason.find("are left in " + (files.root() / "sys/fs/cgroup/job").string()),
            std::string::npos)
      << report.budget_reason;

  // It gives them back; the limit waits a while.
  files.leave(int64_t{1} << 32);
  EXPECT_EQ(loop.in(session).budget_reason, "");
  EXPECT_GT(session.report().values_dropped, 0);

  files.write("sys/fs/cgroup/job/memory.pressure", "some avg10=40.00 avg60=0.00 avg300=0.00 total=0\n");
  const int64_t before = session.report().budget_bytes;
  report = loop.in(session);
  EXPECT_EQ(report.stalled_percent, 40);
  EXPECT_NE(report.budget_reason.find("tasks wait for memory 40 % of the time"), std::string::npos)
      << report.budget_reason;
  EXPECT_LT(report.budget_bytes, before);
}

TEST(BudgetByPressure, GivesWayToWhatAStepNeeds) {
  SystemFiles files;
  files.use();
  files.leave(1000);
  Loop loop;
  loop.measure();
  Session session({.budget = Budget::pressure()});
  for (int i = 0; i < 4; ++i) {
    const StepReport report = step_without_cache(loop, session);
    EXPECT_TRUE(report.completed);
    EXPECT_GT(report.values_dropped, 0) << "all that can be is";
    EXPECT_LT(report.peak_bytes, report.plain_peak_bytes);
    EXPECT_NE(report.budget_reason.find("raised in the step from "), std::string::npos) << report.budget_reason;
  }
  session.set_budget(Budget::bytes(int64_t{1} << 32));
  EXPECT_EQ(loop.in(session).budget_reason, "set_budget(): was pressure");
  EXPECT_EQ(session.report().available_bytes, 0);
  session.set_budget(Budget::pressure());
  EXPECT_NE(loop.in(session).budget_reason.find("set_budget(): was 4.00 GiB; "), std::string::npos)
      << session.report().budget_reason;
}

TEST(BudgetByPressure, IsRefusedByTheDeviceLimitAlone) {
  Loop loop;
  loop.measure();
  Session session({.budget = Budget::pressure()});
  loop.in(session);
  const Outcome outcome = loop.step();
  memory::set_limit(memory::current() + 100000);
  EXPECT_THROW(run_in(session, outcome, [&] { return loop.step(); }), BudgetError);
  memory::set_limit(std::nullopt);
  EXPECT_TRUE(loop.in(session).completed);
}

}  // namespace
}  // namespace remat::test

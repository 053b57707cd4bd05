// Sessions whose steps follow plans.
#include "session/step_planner.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <unistd.h>

#include <remat/planner.h>

#include "planned_loop.h"
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

TEST(PlannedSteps, PeakWhereThePlanSaid) {
  Loop loop;
  const StepReport plain = loop.measure();
  for (const int percent : {80, 60, 45}) {
    Session session({.budget = share_of(plain, percent)});
    EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
    for (int i = 0; i < 5; ++i) {
      const StepReport report = loop.in(session);
      ASSERT_GT(report.planned_peak_bytes, 0) << percent << " %, step " << report.step;
      const auto difference = static_cast<double>(report.peak_bytes - report.planned_peak_bytes);
      EXPECT_LE(std::abs(difference), 0.01 * static_cast<double>(plain.plain_activation_peak_bytes()))
          << percent << " %, step " << report.step;
      EXPECT_GT(report.values_dropped, 0);
    }
  }
}

TEST(PlannedSteps, LessBudgetNeverGivesAHigherMeasuredPeakNorAFasterPlan) {
  Loop loop;
  Session recorded;
  for (int i = 0; i < 3; ++i) loop.in(recorded);
  const Graph graph = recorded.graph();
  const int64_t top = recorded.report().peak_bytes, smallest = recorded.min_budget_bytes().value();
  const int64_t lowest = smallest + (top - smallest) / 20;  // first steps have no plan yet
  int64_t peak = INT64_MAX;
  double seconds = 0;
  constexpr int kBudgets = 50;
  std::vector<int64_t> budgets;
  for (int i = 0; i < kBudgets; ++i) budgets.push_back(top - (top - lowest) * i / (kBudgets - 1));
  const std::vector<Plan> plans = plan_curve(graph, budgets);
  ASSERT_GE(plans.size(), budgets.size());
  for (size_t i = 0; i < budgets.size(); ++i) {
    const int64_t budget = budgets[i];
    const Plan& plan = plans[i];
    EXPECT_GE(plan.predicted_seconds, seconds) << budget;
    seconds = plan.predicted_seconds;
    Session session({.budget = Budget::bytes(budget), .planner = "online", .plan = plan});
    loop.in(session);
    const StepReport report = loop.in(session);
    EXPECT_GT(report.planned_peak_bytes, 0) << budget;
    EXPECT_LE(report.peak_bytes, peak) << budget;
    peak = report.peak_bytes;
  }
  EXPECT_GT(seconds, 0);
}

TEST(PlannedSteps, AGraphTellsPlainsPeak) {
  Loop loop;
  Session session;
  const StepReport report = loop.in(session);
  const Graph& graph = session.graph();
  EXPECT_EQ(graph.problem(), "");
  EXPECT_EQ(graph.baseline_bytes, report.baseline_bytes);
  const auto predicted = predict(graph, std::vector<Action>(graph.values.size(), Action::kKeep));
  EXPECT_EQ(predicted.peak_bytes, report.peak_bytes);
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

TEST(PlannedSteps, AGraphOfAStepUnderPressureIsThatOfPlain) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session free_session, tight_session({.budget = share_of(plain, 50)});
  loop.in(free_session);
  const StepReport tight = loop.in(tight_session);
  EXPECT_GT(tight.values_dropped, 0);
  const Graph& a = free_session.graph();
  const Graph& b = tight_session.graph();
  EXPECT_EQ(a.events.size(), b.events.size());
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  const std::vector<Action> keep(a.values.size(), Action::kKeep);
  EXPECT_EQ(predict(a, keep).peak_bytes, predict(b, keep).peak_bytes);
}

/// An LSTM cell over time, by hand: the gates are chunks of one storage, written to in place one after another.
struct ChunkLoop {
  at::Tensor input, weight;

  ChunkLoop() {
    torch::manual_seed(3);
    weight = torch::randn({64, 256}).requires_grad_();
    input = torch::randn({12, 128, 64});
  }
  Outcome step() {
    weight.mutable_grad() = at::Tensor();
    at::Tensor h = at::zeros({128, 64}), c = at::zeros({128, 64});
    for (int64_t t = 0; t < input.size(0); ++t) {
      const auto gates = at::mm(input[t] + h, weight).unsafe_chunk(4, 1);
      c = gates[0].sigmoid_() * c + gates[1].sigmoid_() * gates[2].tanh_();
      h = gates[3].sigmoid_() * c.tanh();
    }
    const auto loss = h.pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add("weight", weight.grad());
    return outcome;
  }
  StepReport in(Session& session, const Outcome& plain) {
    return run_in(session, plain, [this] { return step(); });
  }
};

TEST(PlannedSteps, ValuesOfOneStorageWrittenToInPlace) {
  ChunkLoop loop;
  const Outcome outcome = loop.step();
  Session free_session;
  loop.in(free_session, outcome);
  const StepReport plain = loop.in(free_session, outcome);
  for (const int percent : {75, 60}) {
    Session tight_session({.budget = share_of(plain, percent)});
    EXPECT_GT(loop.in(tight_session, outcome).values_dropped, 0);
    EXPECT_EQ(tight_session.graph().fingerprint(), free_session.graph().fingerprint());
    for (int i = 0; i < 3; ++i) {
      const StepReport report = loop.in(tight_session, outcome);
      ASSERT_GT(report.planned_peak_bytes, 0) << percent << " %, step " << report.step;
      const auto difference = static_cast<double>(report.peak_bytes - report.planned_peak_bytes);
      // One tensor of one time step more or less is 1.1 %.
      EXPECT_LE(std::abs(difference), 0.025 * static_cast<double>(plain.plain_activation_peak_bytes())) << percent;
      EXPECT_LE(report.operators_replayed, 2 * report.operators_recorded);
    }
  }
}

TEST(PlannedSteps, DepartFromThePlanAndStayWithinTheBudget) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  for (int i = 0; i < 3; ++i) loop.in(session);
  loop.depth = 9;
  EXPECT_EQ(loop.in(session).planned_peak_bytes, 0) << "what is left out is not in the plan's prediction";
  loop.depth = 12;
  loop.batch = 200;
  EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
  loop.batch = 256;
  EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
}

TEST(PlannedSteps, AlternateBetweenPlans) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  int planned = 0;
  for (int i = 0; i < 12; ++i) {
    loop.depth = i % 2 == 0 ? 12 : 11;
    planned += loop.in(session).planned_peak_bytes > 0 ? 1 : 0;
  }
  EXPECT_GE(planned, 6);
  for (int i = 0; i < 4; ++i) {
    loop.depth = i % 2 == 0 ? 12 : 11;
    EXPECT_GT(loop.in(session).planned_peak_bytes, 0) << i;
  }
}

TEST(PlannedSteps, OfADozenShapesInTurn) {
  Loop loop;
  loop.depth = 5;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  for (int round = 0; round < 3; ++round) {
    for (int shape = 0; shape < 12; ++shape) {
      loop.batch = 256 - shape;
      const StepReport report = loop.in(session);
      EXPECT_TRUE(round < 2 || report.planned_peak_bytes > 0) << shape;
    }
  }
}

TEST(PlannedSteps, ShapesThatNeverComeAgain) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  for (int i = 0; i < 12; ++i) {
    loop.batch = 256 - 3 * i;
    loop.in(session);
  }
}

TEST(PlannedSteps, SurviveAnExceptionInTheMiddle) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  for (int i = 0; i < 2; ++i) loop.in(session);
  const int64_t before = memory::current();
  try {
    const Step step = session.step();
    auto h = torch::randn({loop.batch, Loop::kWidth}).requires_grad_();
    for (size_t i = 0; i < 5; ++i) h = torch::gelu(loop.layers->ptr<nn::LinearImpl>(i)->forward(h));
    throw std::runtime_error("no more data");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(memory::current(), before);
  EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
}

TEST(PlannedSteps, ArePlannedOnceTheirTimesAreKnown) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  int plans = 0;
  for (int i = 0; i < 12; ++i) plans += loop.in(session).planning_seconds > 1e-3 ? 1 : 0;
  EXPECT_GE(plans, 1);
  EXPECT_LE(plans, 4);  // after one, two and four steps, and where the first one's memory was another
  EXPECT_LT(loop.in(session).planning_seconds, 1e-3);
}

/// What a policy drops is not the plan's to drop: it needs to drop little more, or nothing.
TEST(PlannedSteps, CountWithWhatAPolicyDrops) {
  Loop loop;
  const StepReport plain = loop.measure();
  const auto replays_in = [&](Session& session) {
    loop.policy = true;
    for (int i = 0; i < 2; ++i) loop.in(session);
    const StepReport report = loop.in(session);
    loop.policy = false;
    return report;
  };
  Session free_session;
  const StepReport alone = replays_in(free_session);
  Session session({.budget = Budget::bytes(alone.peak_bytes + 4096)});
  const StepReport planned = replays_in(session);
  EXPECT_GT(planned.planned_peak_bytes, 0);
  EXPECT_LT(alone.peak_bytes, plain.peak_bytes);
  EXPECT_EQ(planned.operators_replayed, alone.operators_replayed);
}

TEST(PlannedSteps, PercentBudgetsArePlannedFromTheSecondStepOn) {
  Loop loop;
  Session session({.budget = Budget::percent(60)});
  EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
  for (int i = 0; i < 3; ++i) EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
}

TEST(PlannedSteps, CountFromWhatIsAliveNow) {
  Loop loop;
  Session session({.budget = Budget::percent(60)});
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 6; ++i) {
    const StepReport report = loop.in(session);
    kept.push_back(torch::zeros({1 << 18}));
    if (i == 0) continue;
    ASSERT_GT(report.planned_peak_bytes, 0) << report.step;
    EXPECT_NEAR(static_cast<double>(report.peak_bytes), static_cast<double>(report.planned_peak_bytes), 64 << 10);
  }
}

}  // namespace
}  // namespace remat::test

// Sessions whose steps follow plans.
#include "run/step_planner.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <unistd.h>

#include <remat/planner.h>

#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// A chain of layers with dropout; depth and batch may change from step to step.
struct Loop {
  static constexpr int64_t kWidth = 64;
  nn::Sequential layers;
  int64_t batch = 256;
  size_t depth = 12;
  bool policy = false;  ///< keep_compute over the forward pass

  Loop() {
    torch::manual_seed(3);
    for (int i = 0; i < 16; ++i) layers->push_back(nn::Linear(kWidth, kWidth));
  }

  Outcome step() {
    torch::manual_seed(5);
    layers->zero_grad();
    auto x = torch::randn({batch, kWidth}).requires_grad_();
    at::Tensor h = x;
    std::optional<PolicyScope> scope;
    if (policy) scope.emplace(Policy::keep_compute());
    for (size_t i = 0; i < depth; ++i) {
      h = torch::dropout(torch::gelu(layers->ptr<nn::LinearImpl>(i)->forward(h)), 0.1, true);
    }
    scope.reset();
    const auto loss = h.pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add("x", x.grad());
    outcome.add_module(*layers);
    outcome.add_generator();
    return outcome;
  }

  /// A step of the session; the same bits as plain, or the test fails. What comes back outlives the step, which ends
  /// before.
  StepReport in(Session& session) {
    const Outcome plain = step();
    torch::manual_seed(5);
    Step guard = session.step();
    Outcome outcome = step();
    StepReport report = guard.end();
    expect_same_bits(plain, outcome, "step " + std::to_string(report.step));
    EXPECT_LE(report.peak_bytes, report.budget_bytes) << report.step;
    return report;
  }

  /// Plain's activation peak, as a step of a session without a budget measures it.
  StepReport measure() {
    Session session;
    in(session);
    return in(session);
  }
};

Budget share_of(const StepReport& plain, int percent) {
  return Budget::bytes(plain.baseline_bytes + plain.plain_activation_peak_bytes() * percent / 100);
}

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
  for (int i = 0; i < kBudgets; ++i) {
    const int64_t budget = top - (top - lowest) * i / (kBudgets - 1);
    const Plan plan = make_plan(graph, budget);
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
    Step guard = session.step();
    const Outcome outcome = step();
    StepReport report = guard.end();
    expect_same_bits(plain, outcome, "step " + std::to_string(report.step));
    EXPECT_LE(report.peak_bytes, report.budget_bytes) << report.step;
    return report;
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

TEST(PlannedSteps, ASavedPlanReplacesItsFileAndNoOther) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(testing::TempDir()) / ("remat-save-plan-" + std::to_string(getpid()));
  fs::create_directory(directory);
  const fs::path path = directory / "plan.json", link = directory / "link";
  const auto read = [](const fs::path& place) {
    std::ifstream file(place);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::vector<fs::path> others = {path.string() + ".tmp", path.string() + ".part-" + std::to_string(getpid())};
  for (const auto& other : others) std::ofstream(other) << "theirs";
  fs::create_symlink("plan.json", link);
  fs::create_symlink("nothing", directory / "dangling");

  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  loop.in(session);
  loop.in(session);
  session.save_plan(path);
  EXPECT_EQ(read(path), to_json(session.plan()));
  std::ofstream(path) << "old";
  session.save_plan(link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read(path), to_json(session.plan()));
  for (const auto& other : others) EXPECT_EQ(read(other), "theirs") << other;
  EXPECT_THROW(session.save_plan(directory), Error);
  EXPECT_THROW(session.save_plan(directory / "dangling"), Error);
  EXPECT_TRUE(fs::is_symlink(directory / "dangling"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 5);
  fs::remove_all(directory);
}

TEST(PlannedSteps, FollowAPlanThatWasSaved) {
  Loop loop;
  const StepReport plain = loop.measure();
  const std::string path = testing::TempDir() + "remat-step-planner-test.plan.json";
  {
    Session session({.budget = share_of(plain, 60)});
    EXPECT_THROW(session.save_plan(path), Error) << "no step yet";
    loop.in(session);
    EXPECT_THROW(static_cast<void>(session.plan()), Error) << "the first step is recorded";
    loop.in(session);
    session.save_plan(path);
    EXPECT_EQ(session.plan().planner, "auto");
    EXPECT_THROW(session.save_plan("/nowhere/plan.json"), Error);
  }
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::remove(path.c_str());
  Plan plan = plan_from_json(text);
  plan.planner = "mine";
  {
    Session session({.budget = share_of(plain, 60), .planner = "online", .plan = plan});
    EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
    EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
    EXPECT_EQ(session.plan().planner, "mine");
    EXPECT_EQ(session.plan().actions, plan.actions);
  }
  {
    Session session({.budget = share_of(plain, 40), .plan = plan});  // too small for it
    loop.in(session);
    EXPECT_GT(loop.in(session).planned_peak_bytes, 0);
    EXPECT_EQ(session.plan().planner, "auto");
  }
  plan.graph_fingerprint += 1;  // another graph's
  Session session({.budget = share_of(plain, 60), .plan = plan});
  loop.in(session);
  loop.in(session);
  EXPECT_EQ(session.plan().planner, "auto");
}

TEST(PlannedSteps, DepartFromThePlanAndStayWithinTheBudget) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  for (int i = 0; i < 3; ++i) loop.in(session);
  loop.depth = 9;
  EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
  loop.depth = 12;
  loop.batch = 200;
  EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
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

TEST(PlannedSteps, FollowAnyPlanner) {
  Loop loop;
  Session session({.planner = "drop-all"});
  loop.in(session);
  const StepReport report = loop.in(session);
  EXPECT_GT(report.planned_peak_bytes, 0);
  EXPECT_GE(report.values_dropped, report.values_saved / 2);
}

TEST(PlannedSteps, AreNoneWithTheOnlinePlanner) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60), .planner = "online"});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loop.in(session).planned_peak_bytes, 0);
  EXPECT_THROW(session.graph(), Error);
}

std::string decision(const StepReport& report) { return report.decided_by + ": " + report.decision_reason; }

TEST(PlannedSteps, SayWhoDecidedAndWhyNotThePlanGiven) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session first({.budget = share_of(plain, 60)});
  EXPECT_EQ(decision(loop.in(first)), "online: the first step is recorded");
  EXPECT_EQ(decision(loop.in(first)), "auto: ");
  const Plan plan = first.plan();
  loop.in(first);
  loop.depth = 9;
  EXPECT_EQ(decision(loop.in(first)), "online: the step was like none recorded before");
  loop.depth = 12;

  Session given({.budget = share_of(plain, 60), .planner = "online", .plan = plan});
  EXPECT_EQ(decision(loop.in(given)), "online: the first step is recorded");
  EXPECT_EQ(decision(loop.in(given)), "plan given: ");

  Plan other = plan;
  other.graph_fingerprint += 1;
  Session ignoring({.budget = share_of(plain, 60), .plan = other});
  EXPECT_EQ(decision(loop.in(ignoring)), "online: the plan given is of another graph");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(decision(loop.in(ignoring)), "auto: the plan given is of another graph") << i;

  Session small({.budget = share_of(plain, 40), .planner = "online", .plan = plan});
  loop.in(small);
  for (int i = 0; i < 6; ++i) {
    const std::string text = decision(loop.in(small));
    EXPECT_EQ(text.rfind("online: the plan given takes ", 0), 0u) << text;
    EXPECT_NE(text.find("the budget is " + format_bytes(share_of(plain, 40).byte_count())), std::string::npos) << text;
  }

  Session online({.budget = share_of(plain, 60), .planner = "online"});
  loop.in(online);
  EXPECT_EQ(decision(loop.in(online)), "online: ");
}

TEST(PlannedSteps, UnknownPlannersAreRefused) {
  try {
    const Session session({.planner = "best"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[session] there is no planner \"best\"; there are online, auto, keep-all, drop-all, "
                 "segments, articulation-memory, articulation-speed, selective, revolve, rotor");
  }
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

/// One operator that makes a value of 64 bytes.
Graph one_operator() {
  Graph graph;
  graph.values.push_back({.bytes = 64, .producer = 0});
  graph.operators.emplace_back().name = "aten::op";
  graph.operators[0].results = {0};
  graph.events.push_back({GraphEvent::Kind::kOperator, 0, 64, 64});
  return graph;
}

TEST(StepPlanner, CountsOnTheMostThatContentsWerePackedTo) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  graph.values[0].droppable = true;
  graph.events.push_back({GraphEvent::Kind::kIdle, 0, 0, 0});
  for (const auto& [seen, counted] : {std::pair{8, 8}, {16, 16}, {8, 16}, {0, 0}, {8, 0}}) {
    graph.values[0].packed_bytes = seen;
    planner.observe(graph, /*room=*/100);
    EXPECT_EQ(planner.graph()->values[0].packed_bytes, counted) << seen;
  }
}

TEST(StepPlanner, DoesNotPlanAnewForWhatIsAliveBefore) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (int i = 0; i < 4; ++i) planner.observe(graph, /*room=*/100);
  const auto before = planner.schedules(100);
  graph.baseline_bytes += 4;
  planner.observe(graph, /*room=*/100);
  EXPECT_EQ(planner.schedules(100), before);
  const auto other = planner.schedules(80);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0]->plan.predicted_peak_bytes, 4 + 64);
}

TEST(StepPlanner, UsesTheMedianOfTheTimesSeen) {
  StepPlanner planner("auto", true);
  Graph graph = one_operator();
  for (const double seconds : {9.0, 1.0, 2.0, 1.5}) {
    EXPECT_TRUE(planner.wants_trace());
    graph.operators[0].seconds = graph.operators[0].replay_seconds = seconds;
    graph.step_seconds = 10 * seconds;
    planner.observe(graph, /*room=*/100);
  }
  EXPECT_FALSE(planner.wants_trace());
  EXPECT_EQ(planner.graph()->operators[0].seconds, 2.0);
  EXPECT_EQ(planner.graph()->step_seconds, 20.0);
  planner.surprised();
  EXPECT_TRUE(planner.wants_trace());
}

}  // namespace
}  // namespace remat::test

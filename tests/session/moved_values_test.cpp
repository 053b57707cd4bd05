// Values that move to a disk and come back.
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include <remat/planner.h>

#include "planned_loop.h"
#include "support/compare.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "tiers/open_file.h"

namespace remat::test {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// Moves the first `most` of the values that a plan may move.
Plan moving_plan(const Graph& graph, size_t most = SIZE_MAX) {
  Plan plan;
  plan.planner = "all moved";
  plan.graph_fingerprint = graph.fingerprint();
  size_t moved = 0;
  for (const GraphValue& value : graph.values) {
    const bool moves = value.droppable && value.bytes > 0 && ++moved <= most;
    plan.actions.push_back(moves ? Action::kMove : Action::kKeep);
  }
  return plan;
}

class MovedValues : public testing::Test {
 protected:
  Disk disk(int64_t bytes = 256 * kMiB) const { return {directory_.path(""), bytes}; }

  /// Of a loop that runs in a session with a disk.
  Graph graph_of(Loop& loop) const {
    Session session({.disk = disk()});
    loop.in(session);
    return session.graph();
  }

  Loop loop_;
  const TemporaryDirectory directory_;
};

TEST_F(MovedValues, ComeBackWithTheirBits) {
  const StepReport kept = loop_.measure();
  const Plan plan = moving_plan(graph_of(loop_));
  Session session({.verify = true, .plan = plan, .disk = disk()});
  loop_.in(session);
  for (int i = 0; i < 3; ++i) {
    const StepReport report = loop_.in(session);
    EXPECT_EQ(report.decided_by, "plan given");
    EXPECT_GE(report.values_moved, 12);
    EXPECT_GE(report.moved_bytes, 12 * loop_.batch * Loop::kWidth * 4);
    EXPECT_EQ(report.operators_replayed, 0);
    EXPECT_LE(report.peak_bytes, report.planned_peak_bytes);
    EXPECT_LT(report.activation_peak_bytes(), report.plain_activation_peak_bytes() * 6 / 10);
    EXPECT_EQ(report.end_bytes - report.baseline_bytes, kept.end_bytes - kept.baseline_bytes);
  }
}

TEST_F(MovedValues, HaveThePeakThatIsPredicted) {
  const Graph graph = graph_of(loop_);
  for (const size_t most : {5U, 10U, 20U, 30U}) {  // with more the peak is no more in the forward pass
    Session session({.plan = moving_plan(graph, most), .disk = disk()});
    loop_.in(session);
    const StepReport report = loop_.in(session);
    EXPECT_EQ(report.values_moved, static_cast<int64_t>(most));
    EXPECT_EQ(report.peak_bytes, report.planned_peak_bytes) << most;
  }
}

TEST_F(MovedValues, MakeRoomWhereMemoryRunsShort) {
  const Graph graph = graph_of(loop_);
  const Plan plan = moving_plan(graph, 20);
  const int64_t most = predict(graph, plan.actions).peak_bytes;
  const int64_t least = predict(graph, plan.actions, /*budget_bytes=*/1).peak_bytes;
  ASSERT_LT(least, most);
  for (const int64_t budget : {least, (least + most) / 2}) {
    Session session({.budget = Budget::bytes(budget), .plan = plan, .disk = disk()});
    loop_.in(session);
    loop_.in(session);  // what the first steps dropped, others need not
    const StepReport report = loop_.in(session);
    EXPECT_EQ(report.decided_by, "plan given") << report.decision_reason;
    EXPECT_EQ(report.operators_replayed, 0) << "copies were waited for instead";
    EXPECT_LE(report.peak_bytes, budget);
    EXPECT_EQ(report.peak_bytes, report.planned_peak_bytes);
  }
}

TEST_F(MovedValues, GoAgainBeforeAnotherBackwardPass) {
  const auto weight = torch::randn({64, 64}).mul_(0.1).requires_grad_();
  const auto step = [&] {
    weight.mutable_grad() = at::Tensor();
    torch::manual_seed(5);
    auto h = torch::randn({512, 64}).requires_grad_();
    const auto x = h;
    for (int i = 0; i < 8; ++i) h = torch::tanh(h.mm(weight));
    const auto loss = h.pow(2).mean();
    for (const bool again : {true, true, false}) loss.backward({}, /*retain_graph=*/again);
    Outcome outcome;
    outcome.add("x", x.grad());
    outcome.add("weight", weight.grad());
    return outcome;
  };
  const Outcome plain = step();
  std::optional<Plan> plan;
  {
    Session session({.disk = disk()});
    run_in(session, plain, step);
    plan = moving_plan(session.graph());
  }
  Session session({.verify = true, .plan = plan, .disk = disk()});
  run_in(session, plain, step);
  const StepReport report = run_in(session, plain, step);
  EXPECT_EQ(report.decided_by, "plan given");
  EXPECT_GE(report.values_moved, 2 * 8) << "before each backward pass";
}

TEST_F(MovedValues, AreRecomputedWhereTheDiskFails) {
  const Plan plan = moving_plan(graph_of(loop_));
  Session session({.plan = plan, .disk = disk()});
  loop_.in(session);
  EXPECT_GT(loop_.in(session).values_moved, 0);
  // Nothing that is written there can be read again.
  const int file = descriptor_in(directory_.path(""));
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup2(null, file), file);
  close(null);
  testing::internal::CaptureStderr();
  const StepReport report = loop_.in(session);
  loop_.in(session);
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_GT(report.values_moved, 0);
  EXPECT_GT(report.operators_replayed, 0);
  EXPECT_NE(warning.find("values of step 3 were recomputed, as the disk failed: "), std::string::npos) << warning;
  EXPECT_EQ(warning.find("step 4"), std::string::npos) << "once";
}

TEST_F(MovedValues, AreRecomputedWhereTheDiskIsFull) {
  const Plan plan = moving_plan(graph_of(loop_));
  Session session({.plan = plan, .disk = disk(4 * loop_.batch * Loop::kWidth * 4)});
  loop_.in(session);
  testing::internal::CaptureStderr();
  const StepReport report = loop_.in(session);
  const std::string warning = testing::internal::GetCapturedStderr();
  if (report.decided_by == "plan given") {
    EXPECT_GT(report.operators_replayed, 0);
    EXPECT_NE(warning.find("the limit is "), std::string::npos) << warning;
  } else {
    EXPECT_NE(report.decision_reason.find("room"), std::string::npos) << report.decision_reason;
  }
}

TEST_F(MovedValues, AreNotMovedWithoutADisk) {
  const Plan plan = moving_plan(graph_of(loop_));
  Session session({.plan = plan});
  loop_.in(session);
  const StepReport report = loop_.in(session);
  EXPECT_EQ(report.values_moved, 0);
  EXPECT_NE(report.decided_by, "plan given");
  EXPECT_NE(report.decision_reason.find("has no tier to move it to"), std::string::npos) << report.decision_reason;
}

TEST_F(MovedValues, LeaveNothingOnTheDisk) {
  const Plan plan = moving_plan(graph_of(loop_));
  Session session({.plan = plan, .disk = disk()});
  loop_.in(session);
  loop_.in(session);
  EXPECT_TRUE(directory_.names().empty()) << "the file has no name";
}

TEST_F(MovedValues, ChosenByAPlannerFitTheBudget) {
  const StepReport plain = loop_.measure();
  Session session({.budget = share_of(plain, 50), .disk = disk()});
  for (int i = 0; i < 6; ++i) loop_.in(session);  // within the budget, whatever this disk is worth
  EXPECT_EQ(session.graph().tier->bytes, 256 * kMiB);
  EXPECT_GT(session.graph().tier->costs.out.copy, 0);
  EXPECT_GT(session.graph().tier->costs.in.copy, 0);
}

TEST_F(MovedValues, MoveWithoutAPlanWhereReplaysAreDear) {
  constexpr int kDecompositions = 8;  // the singular vectors are saved, some 10 ms to recompute
  const auto x = torch::randn({160, 160}).requires_grad_();
  const auto step = [&] {
    x.mutable_grad() = at::Tensor();
    std::vector<at::Tensor> sums;
    for (int i = 1; i <= kDecompositions; ++i) sums.push_back(at::linalg_svdvals(x * i).sum());
    at::stack(sums).sum().backward();
    Outcome outcome;
    outcome.add("x", x.grad());
    return outcome;
  };
  const Outcome plain = step();
  const StepReport kept = [&] {
    Session session;
    return run_in(session, plain, step);
  }();
  for (const bool has_disk : {false, true}) {
    SessionOptions options{.budget = share_of(kept, 50), .verify = true, .planner = "online"};
    if (has_disk) options.disk = disk();
    Session session(options);
    const StepReport report = run_in(session, plain, step);
    EXPECT_EQ(report.decided_by, "online");
    EXPECT_EQ(report.values_moved >= kDecompositions / 3, has_disk) << report.values_moved;
  }
}

TEST_F(MovedValues, TheSmallestBudgetThatIsNamedWorks) {
  const auto weight = torch::randn({256, 256}) / 16;
  const auto start = torch::randn({256, 256}).requires_grad_();
  const auto step = [&] {
    start.mutable_grad() = at::Tensor();
    at::Tensor h = start;
    for (int i = 0; i < 30; ++i) h = at::sigmoid(at::mm(h, weight));
    h.sum().backward();
    Outcome outcome;
    outcome.add("start", start.grad());
    return outcome;
  };
  const Outcome plain = step();
  const int64_t before = memory::current();
  const int64_t smallest = [&] {
    Session session({.disk = disk()});
    run_in(session, plain, step);
    Graph without = session.graph();
    without.tier.reset();
    EXPECT_LE(*session.min_budget_bytes() - before, smallest_online_budget(without) - without.baseline_bytes);
    return *session.min_budget_bytes();
  }();
  Session session({.budget = Budget::bytes(smallest + (smallest - before) / 16), .disk = disk()});
  for (int i = 0; i < 3; ++i) run_in(session, plain, step);
}

TEST(Disk, IsReadFromText) {
  EXPECT_EQ(Disk::parse("2GiB:/scratch/a:b"), (Disk{"/scratch/a:b", int64_t{2} << 30}));
  EXPECT_ERROR(Disk::parse("/scratch"), "[disk] \"/scratch\" has no colon; give bytes and a directory");
  EXPECT_ERROR(Disk::parse("40%:/scratch"), "[disk] \"40%\" is no number of bytes");
  EXPECT_ERROR(Disk::parse("1GiB:"), "[disk] no directory is named");
  EXPECT_ERROR((Disk{"/scratch", 0}), "[disk] 0 bytes are no room");
  EXPECT_ERROR(Session({.disk = "1GiB:/nowhere"}), "\"/nowhere\"");
}

}  // namespace
}  // namespace remat::test

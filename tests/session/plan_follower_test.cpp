// How a plan is followed by a step that runs some operators more or fewer than the plan's graph has.
#include "session/plan_follower.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <remat/session.h>
#include <torch/torch.h>

#include "observe/recorder.h"
#include "observe/tapes.h"
#include "replay/saved_tensor.h"

namespace remat::test {
namespace {

constexpr int kBlocks = 40;

/// Blocks of three operators; block `longer` has one more, and block `shorter` lacks its last.
at::Tensor blocks(const at::Tensor& x, int longer, int shorter, int count = kBlocks) {
  at::Tensor h = x;
  for (int i = 0; i < count; ++i) {
    h = h.sin();
    if (i == longer) h = h.sigmoid();
    h = h * 1.5;
    if (i != shorter) h = h.tanh();
  }
  return h;
}

/// Notes what the follower says.
class Spy final : public ActionSource {
 public:
  explicit Spy(std::shared_ptr<PlanFollower> follower) : follower_(std::move(follower)) {}
  OperationId advance(const Tape& tape) override {
    const OperationId first = follower_->advance(tape);
    if (first != kNoId) restarts.emplace_back(first, tape.program.size());
    return first;
  }
  std::optional<Action> action_of(const Tape& tape, ValueId value) const override {
    return follower_->action_of(tape, value);
  }
  /// From which operation on actions were due, and how many operations there were.
  std::vector<std::pair<size_t, size_t>> restarts;

 private:
  std::shared_ptr<PlanFollower> follower_;
};

struct Recording {
  std::shared_ptr<PlanFollower> follower = std::make_shared<PlanFollower>();
  std::shared_ptr<Spy> spy = std::make_shared<Spy>(follower);
  std::shared_ptr<Tape> tape = Tapes::all().make();
};

/// A step of blocks() that follows a plan for (-1, -1) which recomputes everything.
Recording follow(int longer, int shorter) {
  const auto x = torch::randn({8}).requires_grad_();
  Session session;
  {
    auto step = session.step();
    blocks(x, -1, -1).sum().backward();
  }
  Schedule schedule{.graph = session.graph(), .plan = {}, .structure = 1};
  schedule.plan.actions.assign(schedule.graph.values.size(), Action::kRecompute);
  Recording run;
  run.follower->schedules = {std::make_shared<const Schedule>(std::move(schedule))};
  run.tape->actions = run.spy;
  install_saved_tensors();
  Recorder::start(run.tape);
  blocks(x, longer, shorter).sum().backward();
  Recorder::stop();
  return run;
}

TEST(PlanFollower, SaysNothingNewWhileTheStepIsThePlans) {
  const Recording run = follow(-1, -1);
  EXPECT_TRUE(run.spy->restarts.empty());
  EXPECT_FALSE(run.follower->has_gaps());
}

// All values of a long step must not be looked at again for each operator that is added or missing.
TEST(PlanFollower, AfterAGapOnlyTheOperatorsBehindItAreLookedAtAgain) {
  const int64_t without_gaps = follow(-1, -1).tape->counts.evicted_values;
  ASSERT_GT(without_gaps, kBlocks / 2);
  for (const auto& [longer, shorter] : {std::pair(20, -1), std::pair(-1, 20), std::pair(10, 30)}) {
    const Recording run = follow(longer, shorter);
    EXPECT_TRUE(run.follower->has_gaps());
    EXPECT_EQ(run.spy->restarts.size(), longer >= 0 && shorter >= 0 ? 2U : 1U);
    for (const auto& [first, recorded] : run.spy->restarts) {
      EXPECT_LT(first, recorded);
      EXPECT_GE(first + 16, recorded) << "too many are looked at again";
    }
    EXPECT_GE(run.tape->counts.evicted_values + 3, without_gaps) << "the plan was not taken up again";
  }
}

// A look costs in proportion to the step: their number must not grow with it.
TEST(PlanFollower, SizesThatStayUnforeseenAreLookedAtAFewTimes) {
  constexpr int kMany = 3000;
  Session session;
  {
    auto step = session.step();
    blocks(torch::randn({8}).requires_grad_(), -1, -1, kMany).sum().backward();
  }
  Schedule schedule{.graph = session.graph(), .plan = {}, .structure = 1};
  schedule.plan.actions.assign(schedule.graph.values.size(), Action::kKeep);
  Recording run;
  run.follower->schedules = {std::make_shared<const Schedule>(std::move(schedule))};
  int looks = 0;
  run.follower->resize = [&](const auto& followed, const PlanFollower::Seen&) {
    ++looks;
    return followed;
  };
  run.tape->actions = run.spy;
  install_saved_tensors();
  Recorder::start(run.tape);
  blocks(torch::randn({9}).requires_grad_(), -1, -1, kMany);
  Recorder::stop();
  EXPECT_GE(looks, 8);
  EXPECT_LE(looks, 17);  // the first and sixteen more; 29 where they were not spread over the step
}

}  // namespace
}  // namespace remat::test

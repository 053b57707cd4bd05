// Steps of other sizes, and with other operators, than those that plans were made for.
#include <map>
#include <string>
#include <vector>

#include "planned_loop.h"
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// Runs `step` plain and as a step of the session: the same bits, and within the budget.
template <class MakeStep>
StepReport compare_step(Session& session, MakeStep&& step) {
  torch::manual_seed(5);
  const Outcome plain = step();
  torch::manual_seed(5);
  return run_in(session, plain, step);
}

/// Plain's activation peak of a step.
template <class MakeStep>
StepReport measure(MakeStep&& step) {
  Session session;
  compare_step(session, step);
  return compare_step(session, step);
}

bool follows(const StepReport& report) { return report.decided_by == "auto"; }

constexpr char kOtherSizes[] = "the plan is that of a step of other sizes";
constexpr char kOtherOperators[] = "the plan is that of a step that ran some operators more or fewer";

TEST(ChangingSteps, SizesThatNeverComeAgain) {
  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  const StepReport plain = loop.measure();
  for (int i = 0; i < 16; ++i) {
    loop.batch = i == 0 ? 256 : 96 + 37 * i % 160;
    const StepReport report = loop.in(session);
    if (i == 0) continue;
    EXPECT_TRUE(follows(report)) << i << ": " << report.decision_reason;
    EXPECT_EQ(report.decision_reason, kOtherSizes) << i;
    if (i < 4) continue;
    // Now so many sizes are known that all others are foretold.
    EXPECT_GT(report.planned_peak_bytes, 0) << i;
    EXPECT_NEAR(static_cast<double>(report.peak_bytes), static_cast<double>(report.planned_peak_bytes),
                0.01 * static_cast<double>(plain.plain_activation_peak_bytes()))
        << i;
  }
}

TEST(ChangingSteps, NothingIsDroppedWherePlainFits) {
  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  for (int i = 0; i < 12; ++i) {
    loop.batch = i % 2 == 0 ? 256 - i : 120 + i;
    const StepReport report = loop.in(session);
    EXPECT_TRUE(i < 4 || (report.values_dropped > 0) == (loop.batch > 200)) << loop.batch;
  }
}

TEST(ChangingSteps, BatchesThatGrowBeyondWhatWasSeen) {
  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  int online = 0;
  for (int i = 0; i < 24; ++i) {
    loop.batch = 72 + 8 * i;
    online += follows(loop.in(session)) ? 0 : 1;
  }
  EXPECT_LE(online, 4);
  for (int i = 0; i < 4; ++i) {
    loop.batch = 251 + i;
    EXPECT_TRUE(follows(loop.in(session))) << i;
  }
}

TEST(ChangingSteps, AreNotTracedForEver) {
  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  int traced = 0;
  uint64_t last = 0;
  for (int i = 0; i < 30; ++i) {
    loop.batch = 256 - 5 * i;
    loop.in(session);
    const uint64_t graph = session.graph().fingerprint();
    traced += graph != last ? 1 : 0;
    last = graph;
  }
  EXPECT_GE(traced, 3);
  EXPECT_LE(traced, 6);
}

TEST(ChangingSteps, LayersThatComeAndGo) {
  Loop loop;
  Session session({.budget = share_of(loop.measure(), 60)});
  loop.in(session);
  loop.in(session);
  for (const size_t depth : {11, 12, 9, 10, 12}) {
    loop.depth = depth;
    const StepReport report = loop.in(session);
    EXPECT_TRUE(follows(report)) << depth << ": " << report.decision_reason;
  }
  loop.depth = 14;
  loop.in(session);  // may take more than there is a plan for
}

/// A recurrence over as many tokens as a text has.
struct Recurrence {
  nn::Linear cell{nn::LinearOptions(48, 48)};
  int64_t tokens = 40;

  Outcome operator()() {
    cell->zero_grad();
    const at::Tensor text = torch::randn({tokens, 64, 48});
    at::Tensor state = torch::zeros({64, 48});
    for (int64_t t = 0; t < tokens; ++t) {
      state = torch::dropout(torch::tanh(cell->forward(state) + text[t]), 0.1, true);
    }
    const at::Tensor loss = state.pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add_module(*cell);
    outcome.add_generator();
    return outcome;
  }
};

TEST(ChangingSteps, SequencesThatGrow) {
  torch::manual_seed(3);
  Recurrence recurrence;
  Session session({.budget = share_of(measure(recurrence), 70)});
  recurrence.tokens = 36;
  for (int i = 0; i < 3; ++i) compare_step(session, recurrence);
  for (recurrence.tokens = 30; recurrence.tokens < 42; ++recurrence.tokens) {
    const StepReport report = compare_step(session, recurrence);
    EXPECT_TRUE(follows(report)) << recurrence.tokens << ": " << report.decision_reason;
  }
}

TEST(ChangingSteps, TrainingAndEvaluationInTurn) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session session({.budget = share_of(plain, 60)});
  const auto evaluate = [&] {
    const torch::NoGradGuard no_grad;
    at::Tensor h = torch::randn({loop.batch, Loop::kWidth});
    for (size_t i = 0; i < loop.depth; ++i) h = torch::gelu(loop.layers->ptr<nn::LinearImpl>(i)->forward(h));
    Outcome outcome;
    outcome.add("loss", h.pow(2).mean());
    return outcome;
  };
  for (int i = 0; i < 10; ++i) {
    loop.batch = 256 - 9 * i;
    const StepReport training = loop.in(session);
    const StepReport evaluation = compare_step(session, evaluate);
    if (i < 2) continue;
    EXPECT_TRUE(follows(training)) << i << ": " << training.decision_reason;
    EXPECT_EQ(training.decision_reason, kOtherSizes) << i;
    EXPECT_TRUE(follows(evaluation)) << i << ": " << evaluation.decision_reason;
    EXPECT_EQ(evaluation.values_dropped, 0) << i;
  }
}

TEST(ChangingSteps, TwoModelsInTurn) {
  Loop loop;
  torch::manual_seed(4);
  Recurrence recurrence;
  const StepReport plain = loop.measure(), other = measure(recurrence);
  const int64_t room = std::max(plain.plain_activation_peak_bytes(), other.plain_activation_peak_bytes()) * 6 / 10;
  Session session({.budget = Budget::bytes(std::max(plain.baseline_bytes, other.baseline_bytes) + room)});
  for (int i = 0; i < 10; ++i) {
    loop.batch = 256 - 9 * i;
    const StepReport first = loop.in(session);
    const StepReport second = compare_step(session, recurrence);
    if (i < 3) continue;
    EXPECT_TRUE(follows(first)) << i << ": " << first.decision_reason;
    EXPECT_TRUE(follows(second)) << i << ": " << second.decision_reason;
  }
}

/// A mixture of experts: each token goes to the two that a router chooses, and one that none goes to does not run.
struct Experts {
  static constexpr int64_t kWidth = 32, kExperts = 6, kLayers = 4;
  nn::ModuleList routers, networks;
  int64_t batch = 0;
  int64_t idle = 0;  ///< times that an expert had no tokens

  Experts() {
    torch::manual_seed(3);
    for (int64_t i = 0; i < kLayers; ++i) {
      nn::Linear router(kWidth, kExperts);
      const torch::NoGradGuard no_grad;
      router->bias.copy_(torch::linspace(0, -1.6, kExperts));
      routers->push_back(router);
      for (int64_t e = 0; e < kExperts; ++e) {
        networks->push_back(nn::Sequential(nn::Linear(kWidth, 4 * kWidth), nn::GELU(), nn::Linear(4 * kWidth, kWidth)));
      }
    }
  }

  Outcome operator()() {
    routers->zero_grad();
    networks->zero_grad();
    torch::manual_seed(100 + static_cast<uint64_t>(batch));
    at::Tensor x = torch::randn({192, kWidth});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      x = x + route(torch::layer_norm(x, {kWidth}), layer);
      x = torch::dropout(x, 0.1, true);
    }
    const at::Tensor loss = x.pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add_module(*routers);
    outcome.add_module(*networks);
    outcome.add_generator();
    return outcome;
  }

  at::Tensor route(const at::Tensor& x, int64_t layer) {
    const auto router = routers->ptr<nn::LinearImpl>(static_cast<size_t>(layer));
    const auto [shares, chosen] = torch::topk(torch::softmax(router->forward(x), 1), 2);
    at::Tensor sum = torch::zeros_like(x);
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto places = torch::where(chosen == e);
      if (places[0].numel() == 0) {
        ++idle;
        continue;
      }
      const auto network = networks->ptr<nn::SequentialImpl>(static_cast<size_t>(layer * kExperts + e));
      const at::Tensor share = shares.index({places[0], places[1]}).unsqueeze(1);
      sum = sum.index_add(0, places[0], network->forward(x.index({places[0]})) * share);
    }
    return sum;
  }
};

TEST(ChangingSteps, ExpertsThatGetOtherTokensInEveryStepOrNone) {
  Experts experts;
  const StepReport plain = measure(experts);
  Session session({.budget = share_of(plain, 65)});
  int followed = 0;
  std::map<std::string, int> reasons;
  constexpr int kSteps = 24;
  for (experts.batch = 0; experts.batch < kSteps; ++experts.batch) {
    const StepReport report = compare_step(session, experts);
    followed += follows(report) ? 1 : 0;
    ++reasons[report.decision_reason];
    EXPECT_LE(report.operators_replayed, report.operators_recorded) << report.step;
  }
  EXPECT_GT(experts.idle, 0);
  EXPECT_GE(followed, kSteps - 3);
  EXPECT_GT(reasons[kOtherSizes], 0);
  EXPECT_GT(reasons[kOtherOperators], 0);
}

TEST(ChangingSteps, APlanThatWasGivenIsForItsOwnSizesAlone) {
  Loop loop;
  const StepReport plain = loop.measure();
  Session first({.budget = share_of(plain, 60)});
  loop.in(first);
  loop.in(first);
  Session given({.budget = share_of(plain, 60), .planner = "online", .plan = first.plan()});
  for (int i = 0; i < 2; ++i) loop.in(given);
  EXPECT_EQ(given.report().decided_by, "plan given");
  loop.batch = 200;
  EXPECT_EQ(loop.in(given).decided_by, "online");
  loop.batch = 256;
  EXPECT_EQ(loop.in(given).decided_by, "plan given");
}

}  // namespace
}  // namespace remat::test

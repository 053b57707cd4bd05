// A mixture of experts, trained on other tokens in each step: operators and sizes differ from step to step.
#include <algorithm>
#include <set>

#include "support/compare.h"
#include "zoo/moe.h"

namespace remat::test {
namespace {

constexpr int64_t kSteps = 11;

struct Trained {
  Outcome outcome;  ///< losses and weights
  std::vector<StepReport> reports;
};

/// `most`: of activations, in bytes; 0: no budget. Without it, plain.
Trained train(std::optional<int64_t> most) {
  constexpr int64_t kSeq = 16, kVocab = 30;
  torch::manual_seed(5);
  const auto model = zoo::make_moe({.layers = 4, .width = 32, .heads = 4, .hidden = 64, .seq = kSeq, .vocab = kVocab});
  for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
  std::optional<Session> session;
  if (most) session.emplace(SessionOptions{.budget = *most > 0 ? Budget::bytes(memory::current() + *most) : Budget()});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  Trained trained;
  for (int64_t i = 0; i < kSteps; ++i) {
    const auto tokens = torch::randint(kVocab, {i % 3 == 0 ? 1 : 4, kSeq});
    optimizer.zero_grad(/*set_to_none=*/false);
    {
      std::optional<Step> step;
      if (session) step.emplace(session->step());
      const auto [logits, balance] = model->forward_with_balance(tokens);
      auto loss = at::cross_entropy_loss(logits.flatten(0, 1), tokens.flatten()) + 0.01 * balance;
      loss.backward();
      trained.outcome.add("loss " + std::to_string(i), loss);
    }
    if (session) trained.reports.push_back(session->report());
    optimizer.step();
  }
  for (const auto& parameter : model->named_parameters()) trained.outcome.add(parameter.key(), parameter.value());
  return trained;
}

TEST(Routing, IsTheSameWithinABudgetThoughEveryStepIsAnother) {
  memory::start_accounting();
  const Trained plain = train(std::nullopt);
  const Trained recorded = train(0);
  expect_same_bits(plain.outcome, recorded.outcome, "no budget");
  std::set<int64_t> operators;
  int64_t largest = 0;
  for (const StepReport& report : recorded.reports) {
    operators.insert(report.operators_recorded);
    largest = std::max(largest, report.plain_activation_peak_bytes());
  }
  EXPECT_GT(operators.size(), 2u);  // in some steps an expert has no tokens

  const Trained within = train(largest / 2);
  expect_same_bits(plain.outcome, within.outcome, "half");
  for (const StepReport& report : within.reports) EXPECT_LE(report.peak_bytes, report.budget_bytes) << report.step;
  EXPECT_GT(within.reports.back().operators_replayed, 0);
}

}  // namespace
}  // namespace remat::test

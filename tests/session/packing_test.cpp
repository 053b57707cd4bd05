// Values that are held packed instead of dropped.
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// Runs `program` plain, then in steps with less and less memory; returns the report of the last.
StepReport expect_exact_under_pressure(const Program& program, bool pack = true) {
  const Outcome plain = run_seeded(program);
  StepReport last;
  for (const int percent : {90, 75, 60}) {
    Session session({.budget = Budget::percent(percent), .device = c10::kCPU, .verify = true, .pack = pack});
    for (int i = 0; i < 2; ++i) {  // the first step measures
      Step step = session.step();
      expect_same_bits(plain, run_seeded(program), std::to_string(percent) + " %");
      last = step.end();
      EXPECT_LE(last.peak_bytes, last.budget_bytes);
      EXPECT_EQ(last.end_bytes, last.baseline_bytes);
    }
  }
  return last;
}

Outcome dropout_chain(int times = 1) {
  auto x = torch::randn({1024, 128}).requires_grad_();
  const auto weight = torch::randn({128, 128}).mul_(0.05).requires_grad_();
  auto h = x;
  for (int i = 0; i < 12; ++i) h = torch::dropout(h.mm(weight), 0.2, true);
  const auto loss = h.pow(2).sum();
  for (int i = 0; i < times; ++i) loss.backward({}, /*retain_graph=*/i + 1 < times);
  Outcome outcome;
  outcome.add("loss", loss);
  outcome.add("x", x.grad());
  outcome.add("weight", weight.grad());
  outcome.add_generator();
  return outcome;
}

TEST(PackedValues, DropoutMasksAreBits) {
  const StepReport report = expect_exact_under_pressure([] { return dropout_chain(); });
  EXPECT_GE(report.values_packed, 6);
  EXPECT_GE(report.packed_bytes, 6 * 1024 * 128 * 4 * 31 / 32);
  for (const auto& op : report.replayed) EXPECT_NE(op.name, "aten::bernoulli_") << "a mask was drawn again";
}

TEST(PackedValues, AreNotThereWhereTurnedOff) {
  const StepReport report = expect_exact_under_pressure([] { return dropout_chain(); }, /*pack=*/false);
  EXPECT_EQ(report.values_packed, 0);
  EXPECT_EQ(report.packed_bytes, 0);
  EXPECT_GT(report.values_dropped, 0);
}

TEST(PackedValues, ServeSeveralBackwardCalls) {
  EXPECT_GT(expect_exact_under_pressure([] { return dropout_chain(3); }).values_packed, 0);
}

TEST(PackedValues, ComparisonsAndIndices) {
  const StepReport report = expect_exact_under_pressure([] {
    auto x = torch::randn({8, 16, 64, 64}).requires_grad_();
    at::Tensor loss = torch::zeros({});
    auto y = x;
    for (int i = 0; i < 8; ++i) {
      y = y.masked_fill(y > 1 + i, 0.0);
      loss = loss + torch::max_pool2d(y, 2).sum() * (i + 1);
    }
    loss.backward();
    Outcome outcome;
    outcome.add("x", x.grad());
    return outcome;
  });
  EXPECT_GT(report.values_packed, 0);
}

/// The operator makes one hope for bits, the contents have more.
TEST(PackedValues, AreRefusedWhereTheContentsHaveMoreElements) {
  const StepReport report = expect_exact_under_pressure([] {
    auto x = torch::randn({64, 1024}).requires_grad_();
    const auto probability = torch::rand({64, 1024});
    auto h = x;
    for (int i = 0; i < 8; ++i) {
      auto noise = torch::bernoulli(probability);
      noise.slice(0, 0, 8).mul_(0.5);  // three different elements in one storage
      h = (h * noise).sin();
    }
    h.sum().backward();
    Outcome outcome;
    outcome.add("x", x.grad());
    outcome.add_generator();
    return outcome;
  });
  EXPECT_EQ(report.values_packed, 0);
}

TEST(PackedValues, MasksOfAlphaAndFeatureDropout) {
  const StepReport report = expect_exact_under_pressure([] {
    nn::AlphaDropout alpha(0.3);
    nn::Dropout2d feature(0.3);
    auto x = torch::randn({16, 8, 32, 32}).requires_grad_();
    auto h = x;
    for (int i = 0; i < 12; ++i) h = alpha(feature(h.sin()));
    h.sum().backward();
    Outcome outcome;
    outcome.add("x", x.grad());
    outcome.add_generator();
    return outcome;
  });
  EXPECT_GT(report.values_packed, 0);
}

}  // namespace
}  // namespace remat::test

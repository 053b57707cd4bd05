// What the figures of a step count, and what else happens to it meanwhile: other steps, other threads, older tensors.
#include <thread>
#include <vector>

#include "support/compare.h"

namespace remat::test {
namespace {

at::Tensor kibibytes(int64_t count) { return torch::empty({count << 10}, torch::kByte); }

TEST(StepFigures, TheUsersPeakCoversSeveralSteps) {
  Session session;
  session.step().end();
  memory::reset_peak();
  const int64_t before = memory::current();
  for (const int64_t size : {200, 3}) {
    auto step = session.step();
    kibibytes(size);
    EXPECT_EQ(step.end().peak_bytes, before + (size << 10));
  }
  EXPECT_EQ(memory::peak(), before + (200 << 10));
}

TEST(StepFigures, TheUsersResetTakesNothingFromAStep) {
  Session session;
  auto step = session.step();
  const int64_t before = memory::current();
  kibibytes(200);
  memory::reset_peak();
  EXPECT_EQ(step.end().peak_bytes, before + (200 << 10));
}

TEST(StepFigures, AStepOfAnotherThreadTakesNothingFromThisOne) {
  Session session;
  auto step = session.step();
  const int64_t before = memory::current();
  kibibytes(200);
  std::thread([] {
    Session other;
    auto theirs = other.step();
    kibibytes(3);
  }).join();
  const StepReport& report = step.end();
  EXPECT_EQ(report.peak_bytes, before + (200 << 10));
  EXPECT_EQ(report.plain_peak_bytes, before + (200 << 10));
}

/// Forward and backward of three layers, in a step of `session`.
StepReport train(Session& session, const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  auto step = session.step();
  at::Tensor h = x;
  for (const auto& w : weights) h = torch::gelu(h.mm(w));
  h.sum().backward();
  h.reset();
  return step.end();
}

std::vector<at::Tensor> make_weights(int count, int64_t width) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < count; ++i) {
    weights.push_back(torch::randn({width, width}).requires_grad_());
    weights.back().mutable_grad() = at::zeros_like(weights.back());
  }
  return weights;
}

TEST(StepFigures, AShareIsOneOfTheLargestStepSoFar) {
  memory::start_accounting();
  const auto weights = make_weights(8, 16);
  Session session({.budget = Budget::percent(60)});
  const auto limit = [](const StepReport& report) { return report.budget_bytes - report.baseline_bytes; };
  const StepReport small = train(session, torch::randn({256, 16}), weights);
  EXPECT_EQ(limit(small), small.plain_activation_peak_bytes() * 60 / 100);
  EXPECT_EQ(limit(train(session, torch::randn({256, 16}), weights)), small.plain_activation_peak_bytes() * 60 / 100);
  const StepReport larger = train(session, torch::randn({384, 16}), weights);
  EXPECT_EQ(limit(larger), larger.plain_activation_peak_bytes() * 60 / 100);
  EXPECT_EQ(limit(train(session, torch::randn({128, 16}), weights)), larger.plain_activation_peak_bytes() * 60 / 100);
}

TEST(StepFigures, GradientsThatAreOlderThanTheSessionCount) {
  memory::start_accounting();
  std::vector<float> weight(64 * 64), gradient(64 * 64);  // from elsewhere, as what an allocator before remat's made
  auto w = torch::from_blob(weight.data(), {64, 64}).requires_grad_();
  w.mutable_grad() = torch::from_blob(gradient.data(), {64, 64});
  const auto x = torch::randn({8, 64});
  Session session;
  const int64_t before = memory::current();
  EXPECT_EQ(train(session, x, {w}).baseline_bytes, before + 2 * int64_t{64 * 64 * 4});
  EXPECT_EQ(train(session, x, {w}).baseline_bytes, before + 2 * int64_t{64 * 64 * 4});
}

TEST(StepFigures, PlansLeaveRoomForInputsThatComeFromElsewhere) {
  memory::start_accounting();
  const auto weights = make_weights(12, 32);
  std::vector<float> batch(1024 * 32, 0.5F);
  const auto foreign = [&] { return torch::from_blob(batch.data(), {1024, 32}); };
  Session free;
  const StepReport plain = train(free, foreign(), weights);
  Session session({.budget = Budget::bytes(plain.baseline_bytes + plain.plain_activation_peak_bytes() * 50 / 100)});
  for (int i = 0; i < 6; ++i) {
    const StepReport report = train(session, foreign(), weights);
    EXPECT_EQ(report.baseline_bytes, plain.baseline_bytes);
    EXPECT_LE(report.peak_bytes, report.budget_bytes);
    if (i == 0) continue;
    EXPECT_GT(report.planned_peak_bytes, 0) << i;
    EXPECT_LE(report.planned_peak_bytes, report.budget_bytes) << i;
    EXPECT_NEAR(static_cast<double>(report.planned_peak_bytes), static_cast<double>(report.peak_bytes),
                0.01 * static_cast<double>(plain.plain_activation_peak_bytes()))
        << i;
  }
}

}  // namespace
}  // namespace remat::test

// Long chains and many tiny operators: no recursion, no quadratic time.
#include "support/compare.h"

#include <chrono>

namespace remat::test {
namespace {

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Outcome chain(int64_t length, int64_t size) {
  auto x = torch::randn({size}).requires_grad_();
  auto h = x;
  for (int64_t i = 0; i < length; ++i) h = i % 3 == 0 ? h.sin() : i % 3 == 1 ? h * 1.01 : h + x;
  h.sum().backward();
  Outcome outcome;
  outcome.add("grad", x.grad());
  return outcome;
}

TEST(DeepGraph, TwentyThousandOperatorsInOneChain) {
  torch::manual_seed(1);
  chain(1000, 4);
  torch::manual_seed(1);
  Outcome plain;
  const double plain_seconds = seconds_of([&] { plain = chain(20000, 4); });
  const auto check = [&](const char* what, const std::function<Outcome()>& run) {
    torch::manual_seed(1);
    Outcome other;
    const double seconds = seconds_of([&] { other = run(); });
    expect_same_bits(plain, other, what);
    EXPECT_LT(seconds, 40 * plain_seconds + 2) << what << ", plain takes " << plain_seconds;
  };
  check("drop all", [] {
    PolicyScope scope(Policy::drop_all());
    return chain(20000, 4);
  });
  check("session", [] {
    Session session;
    auto step = session.step();
    return chain(20000, 4);
  });
  check("verified", [] {
    Session session({.budget = {}, .device = c10::kCPU, .verify = true});
    auto step = session.step();
    PolicyScope scope(Policy::drop_all());
    return chain(20000, 4);
  });
}

TEST(DeepGraph, AChainWithinATightBudget) {
  memory::start_accounting();
  constexpr int64_t kLength = 3000;
  constexpr int64_t kSize = 1024;
  torch::manual_seed(1);
  const Outcome plain = chain(kLength, kSize);
  for (const int64_t percent : {50, 10}) {
    torch::manual_seed(1);
    const int64_t limit = memory::current() + kLength / 3 * kSize * 4 * percent / 100;
    Session session({.budget = Budget::bytes(limit)});
    StepReport report;
    Outcome other;
    const double seconds = seconds_of([&] {
      auto step = session.step();
      other = chain(kLength, kSize);
      report = step.end();
    });
    expect_same_bits(plain, other, "chain");
    EXPECT_LE(report.peak_bytes, limit);
    EXPECT_GT(report.operators_replayed, 0);
    EXPECT_LT(report.operators_replayed, 20 * report.operators_recorded) << percent << " %";
    EXPECT_LT(seconds, 60);
  }
}

// What is given up under pressure is chosen among all values; that must not be done anew for each operator.
TEST(DeepGraph, ALongStepUnderPressureTakesNoQuadraticTime) {
  memory::start_accounting();
  constexpr int64_t kLength = 40000;
  constexpr int64_t kSize = 64;
  const auto sines = [] {  // each saves its input
    const auto x = torch::ones({kSize}).requires_grad_();
    auto h = x * 1;
    for (int64_t i = 0; i < kLength; ++i) h = h.sin();
    h.sum().backward();
    Outcome outcome;
    outcome.add("grad", x.grad());
    return outcome;
  };
  Outcome plain;
  const double plain_seconds = seconds_of([&] { plain = sines(); });
  const int64_t limit = memory::current() + kLength * kSize * 4 * 60 / 100;
  Session session({.budget = Budget::bytes(limit), .planner = "online"});
  StepReport report;
  Outcome other;
  const double seconds = seconds_of([&] {
    auto step = session.step();
    other = sines();
    report = step.end();
  });
  expect_same_bits(plain, other, "sines");
  EXPECT_LE(report.peak_bytes, limit);
  EXPECT_GT(report.operators_replayed, 0);
  EXPECT_LT(seconds, 20 * plain_seconds + 2) << "plain takes " << plain_seconds;
}

TEST(DeepGraph, ACheckpointPerBlockReplaysEachOperatorOnce) {
  Session session;
  auto x = torch::randn({64}).requires_grad_();
  auto step = session.step();
  auto h = x;
  for (int i = 0; i < 100; ++i) {
    h = checkpoint(
        [](at::Tensor a) {
          for (int j = 0; j < 10; ++j) a = a.sin() * 1.1;
          return a;
        },
        h);
  }
  h.sum().backward();
  const auto& report = step.end();
  EXPECT_GT(report.operators_replayed, 0);
  EXPECT_LE(report.operators_replayed, report.operators_recorded);
}

}  // namespace
}  // namespace remat::test

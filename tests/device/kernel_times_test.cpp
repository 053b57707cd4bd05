// Operators' seconds are those of their kernels, which run when the step has long gone on.
#include <remat/graph.h>
#include <remat/session.h>

#include <exception>
#include <stdexcept>

#include "device/device_fixture.h"

namespace remat::simulated {
namespace {

const c10::Device kDevice(c10::kPrivateUse1, 0);

class KernelTimesTest : public DeviceTest {
 protected:
  /// Forward and backward of `count` products and their sines.
  static void run(int count) {
    const auto x = torch::ones({100}).to(kDevice).requires_grad_();
    auto y = x;
    for (int i = 0; i < count; ++i) y = (y * 1.01).sin();
    y.sum().backward();
  }
};

TEST_F(KernelTimesTest, AreThoseOfTheKernels) {
  constexpr int kCount = 20;
  constexpr int64_t kMostDelay = 8000;  // microseconds; half of that on average
  Session session({.device = kDevice});
  set_delay(kMostDelay);
  Step step = session.step();
  run(kCount);
  const StepReport report = step.end();
  set_delay(0);
  double sum = 0;
  for (const auto& op : session.graph().operators) sum += op.seconds;
  const double expected = 2 * kCount * kMostDelay / 2e6;
  EXPECT_GT(sum, 0.6 * expected);
  EXPECT_LT(sum, 2 * report.step_seconds);
  EXPECT_GE(report.step_seconds, sum * 0.9) << "the step is over when its kernels are";
  double replays = 0;
  for (const auto& op : session.graph().operators) replays += op.replay_seconds;
  EXPECT_NEAR(replays, sum, 1e-6);
}

/// Whoever waits for kernels is told of one that failed, and nobody else.
TEST_F(KernelTimesTest, AKernelsFailureIsThrownAtTheEndOfTheStep) {
  Session session({.device = kDevice});
  Step step = session.step();
  run(3);
  WorkQueue::of(current_stream(0)).submit([] { throw std::runtime_error("the kernel failed"); });
  EXPECT_THROW(step.end(), std::exception);
  Step next = session.step();
  run(1);
  EXPECT_NO_THROW(next.end());
}

}  // namespace
}  // namespace remat::simulated

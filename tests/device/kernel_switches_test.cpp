// Switches of accelerators' kernels that change between forward and backward: a replay finds those of forward.
#include "device/kernel_switches.h"

#include <functional>
#include <string>
#include <vector>

#include <remat/operators.h>
#include <remat/policy.h>
#include <remat/session.h>
#include <torch/library.h>

#include "device/device_fixture.h"
#include "device/kernel_view.h"

namespace remat::simulated {
namespace {

using device::KernelSwitches;
using device::KernelSwitchesScope;
using enum at::Float32Backend;
using enum at::Float32Op;
using enum at::Float32Precision;

at::Context& context() { return at::globalContext(); }

struct Switch {
  const char* name;
  std::function<void(bool)> set;
};

const std::vector<Switch>& all_switches() {
  static const std::vector<Switch> switches = {
      {"cudnn", [](bool on) { context().setUserEnabledCuDNN(on); }},
      {"cudnn_benchmark", [](bool on) { context().setBenchmarkCuDNN(on); }},
      {"cudnn_deterministic", [](bool on) { context().setDeterministicCuDNN(on); }},
      {"cudnn_benchmark_limit", [](bool on) { context().setBenchmarkLimitCuDNN(on ? 3 : 10); }},
      {"fp16_reduction", [](bool on) { context().setAllowFP16ReductionCuBLAS(on); }},
      {"bf16_reduction", [](bool on) { context().setAllowBF16ReductionCuBLAS(on); }},
      {"bf16_split", [](bool on) { context().setAllowBF16ReductionCuBLAS(false, on); }},
      {"fp16_accumulation", [](bool on) { context().setAllowFP16AccumulationCuBLAS(on); }},
      {"matmul", [](bool on) { context().setAllowTF32CuBLAS(on); }},
      {"matmul_medium", [](bool on) { context().setFloat32MatmulPrecision(on ? "medium" : "highest"); }},
      {"matmul_alone", [](bool on) { context().setFloat32Precision(CUDA, MATMUL, on ? TF32 : IEEE); }},
      {"convolutions", [](bool on) { context().setAllowTF32CuDNN(on); }},
      {"above_all", [](bool on) { context().setFloat32Precision(GENERIC, ALL, on ? TF32 : IEEE); }},
  };
  return switches;
}

/// What PyTorch began with, as far as it can be set: convolutions stay as they are.
void reset_precision() {
  context().setFloat32MatmulPrecision("highest");
  context().setFloat32Precision(GENERIC, ALL, NONE);
  context().setFloat32Precision(CUDA, ALL, NONE);
  context().setFloat32Precision(CUDA, MATMUL, NONE);
  for (const auto op : {CONV, RNN, MATMUL}) context().setFloat32Precision(MKLDNN, op, NONE);
}

class KernelSwitchesTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    reset_precision();
    before_.emplace(KernelSwitches::current());
  }
  void TearDown() override {
    reset_precision();
    { const KernelSwitchesScope as_before(*before_); }
    context().setUserEnabledCuDNN(true);
    context().setBenchmarkCuDNN(false);
    context().setDeterministicCuDNN(false);
    context().setBenchmarkLimitCuDNN(10);
    context().setAllowFP16ReductionCuBLAS(true);
    context().setAllowBF16ReductionCuBLAS(true);
    context().setAllowFP16AccumulationCuBLAS(false);
    EXPECT_EQ(KernelSwitches::current(), *before_);
    DeviceTest::TearDown();
  }

 private:
  std::optional<KernelSwitches> before_;
};

/// Of a setting that takes its value from one above it, and has a default where that has none, which cannot be set.
TEST_F(KernelSwitchesTest, InheritanceIsKept) {
  const auto convolutions = [] { return context().float32Precision(CUDA, CONV); };
  ASSERT_EQ(convolutions(), TF32) << "by default";
  context().setFloat32Precision(GENERIC, ALL, IEEE);
  const KernelSwitches ieee = KernelSwitches::current();
  context().setFloat32Precision(GENERIC, ALL, NONE);
  {
    const KernelSwitchesScope scope(ieee);
    EXPECT_EQ(convolutions(), IEEE);
  }
  EXPECT_EQ(convolutions(), TF32) << "by default";
  for (const auto precision : {IEEE, TF32}) {
    context().setFloat32Precision(GENERIC, ALL, precision);
    EXPECT_EQ(convolutions(), precision) << "as is set above it";
    EXPECT_EQ(context().float32Precision(CUDA, MATMUL), precision) << "as is set above it";
  }
}

TEST_F(KernelSwitchesTest, AreInForceInAScopeAndAsTheyWereAfterIt) {
  for (const Switch& each : all_switches()) {
    for (const bool on : {true, false}) {
      each.set(on);
      const KernelSwitches then = KernelSwitches::current();
      each.set(!on);
      const KernelSwitches now = KernelSwitches::current();
      EXPECT_FALSE(then == now) << each.name;
      {
        const KernelSwitchesScope scope(then);
        EXPECT_TRUE(KernelSwitches::current() == then) << each.name;
      }
      EXPECT_TRUE(KernelSwitches::current() == now) << each.name;
    }
    reset_precision();
  }
}

/// Kernels ask in these words, and throw where the older settings say something else than the newer.
TEST_F(KernelSwitchesTest, OlderSettingsAgreeWithTheNewer) {
  const KernelSwitches ieee = KernelSwitches::current();
  for (const std::string precision : {"highest", "high", "medium"}) {
    context().setFloat32MatmulPrecision(precision);
    const auto before = context().float32MatmulPrecision();
    {
      const KernelSwitchesScope scope(ieee);
      EXPECT_FALSE(context().allowTF32CuBLAS()) << precision;
    }
    EXPECT_EQ(context().allowTF32CuBLAS(), precision != "highest");
    EXPECT_EQ(context().float32MatmulPrecision(), before);
  }
}

double digits_of(const KernelSwitches& switches) {
  double digits = switches.cudnn + 2 * switches.cudnn_benchmark + 4 * switches.cudnn_deterministic;
  digits += 8 * switches.cudnn_benchmark_limit + 128 * static_cast<int>(switches.fp16_reduction);
  digits += 512 * static_cast<int>(switches.bf16_reduction) + 2048 * switches.fp16_accumulation;
  for (const auto precision : switches.precision) digits = 8 * digits + static_cast<int>(precision);
  return digits;
}

/// A kernel whose result is another under other switches.
at::Tensor see_switches(const at::Tensor& x) {
  at::Tensor result = at::empty_like(x);
  auto fill = [view = kernel_view(result), digits = digits_of(KernelSwitches::current())] { view.fill_(digits); };
  WorkQueue::of(current_stream(0)).submit(std::move(fill));
  return result;
}

TEST_F(KernelSwitchesTest, AReplayFindsThoseOfTheCall) {
  torch::Library library(torch::Library::FRAGMENT, "remat_test_switches", std::nullopt, __FILE__, __LINE__);
  library.def("see(Tensor x) -> Tensor");
  library.impl("see", torch::dispatch(c10::DispatchKey::PrivateUse1, &see_switches));
  const auto see = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("remat_test_switches::see", "")
                       .typed<at::Tensor(const at::Tensor&)>();
  declare_repeatable("remat_test_switches::see");
  const c10::Device on_device(c10::kPrivateUse1, 0);
  Session session({.device = on_device});
  for (const Switch& each : all_switches()) {
    for (const bool on : {true, false}) {
      each.set(on);
      const double digits = digits_of(KernelSwitches::current());
      const auto x = torch::ones({100}, torch::kDouble).to(on_device);
      const auto weight = torch::ones({100}, torch::kDouble).to(on_device).requires_grad_();
      Step step = session.step();
      at::Tensor loss;
      {
        const PolicyScope scope(Policy::drop_all());
        loss = (see.call(x + 0) * weight).sum();
      }
      each.set(!on);
      const KernelSwitches now = KernelSwitches::current();
      EXPECT_NE(digits_of(now), digits) << each.name;
      loss.backward();
      EXPECT_GT(step.end().operators_replayed, 0) << each.name;
      EXPECT_TRUE(torch::equal(weight.grad().cpu(), torch::full({100}, digits, torch::kDouble))) << each.name;
      EXPECT_TRUE(KernelSwitches::current() == now) << each.name;
    }
    reset_precision();
  }
}

}  // namespace
}  // namespace remat::simulated

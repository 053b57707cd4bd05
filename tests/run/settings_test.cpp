// Switches of PyTorch that change bits and differ between forward and backward: a replay runs under those of the
// recorded call, and the user's are in force again after it.
#include <cfenv>

#include <ATen/Parallel.h>

#include "support/compare.h"

namespace remat::test {
namespace {

/// Runs forward under `on`, backward after `off`.
Outcome train(const std::function<at::Tensor(const at::Tensor&)>& forward, const std::function<void()>& on,
              const std::function<void()>& off) {
  Outcome outcome;
  const auto x = torch::randn({16, 3, 64, 64}).requires_grad_();
  on();
  auto y = forward(x);
  off();
  const auto loss = y.square().mean();
  y = at::Tensor();
  loss.backward();
  outcome.add("loss", loss);
  outcome.add("gradient", x.grad());
  return outcome;
}

TEST(Settings, OneDnn) {
  const auto weight = torch::randn({16, 3, 3, 3});
  expect_exact([&] {
    return train([&](const at::Tensor& x) { return torch::conv2d(x, weight).tanh(); },
                 [] { at::globalContext().setUserEnabledMkldnn(false); },
                 [] { at::globalContext().setUserEnabledMkldnn(true); });
  });
  EXPECT_TRUE(at::globalContext().userEnabledMkldnn());
}

TEST(Settings, Threads) {
  const int before = at::get_num_threads();
  expect_exact([&] {
    return train([](const at::Tensor& x) { return x.mul(1.5).sum().sin().exp() * x.sin().exp(); },
                 [] { at::set_num_threads(7); }, [&] { at::set_num_threads(before); });
  });
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(Settings, Denormals) {
  expect_exact([] {
    return train([](const at::Tensor& x) { return ((x * 1e-39).mul(0.7) * 1e38).sin().exp(); },
                 [] { at::Context::setFlushDenormal(true); }, [] { at::Context::setFlushDenormal(false); });
  });
}

TEST(Settings, Rounding) {
  expect_exact([] {
    return train([](const at::Tensor& x) { return (x * 1.7).div(3).sin().exp(); }, [] { std::fesetround(FE_UPWARD); },
                 [] { std::fesetround(FE_TONEAREST); });
  });
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST(Settings, ProductPrecision) {
  const auto weight = torch::randn({256, 64});
  expect_exact([&] {
    return train([&](const at::Tensor& x) { return x.flatten(0, 2).mm(weight.t()).tanh(); },
                 [] { at::globalContext().setFloat32MatmulPrecision("medium"); },
                 [] { at::globalContext().setFloat32MatmulPrecision("highest"); });
  });
}

TEST(Settings, AreTheUsersAgainWhereAReplayFails) {
  const int before = at::get_num_threads();
  at::Tensor loss;
  auto other = torch::ones({64});
  {
    const PolicyScope scope(Policy::drop_all());
    const auto x = torch::randn({64}).requires_grad_();
    at::set_num_threads(before + 3);
    loss = (x * other).exp().sum();
    at::set_num_threads(before);
  }
  other.data().fill_(2);  // what a replay would read
  try {
    loss.backward();
  } catch (const Error&) {  // NOLINT: either is right
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
}  // namespace remat::test

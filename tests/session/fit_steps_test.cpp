// fit() by steps that remat runs.
#include <remat/fit_steps.h>

#include <torch/torch.h>

#include "support/expect_error.h"

namespace remat::test {
namespace {

torch::nn::Sequential small_net() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) {
    net->push_back(torch::nn::Linear(64, 256));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::Linear(256, 64));
  }
  return net;
}

MakeFitStep steps_of(torch::nn::Sequential net) {
  return [net](int64_t batch) {
    return [net = net, x = torch::randn({batch, 64})]() mutable {
      net->zero_grad();
      net->forward(x).square().mean().backward();
    };
  };
}

TEST(FitSteps, WhatIsFoundFitsAndIsLargerThanPlain) {
  constexpr int64_t kBudget = 8 << 20;
  const auto net = small_net();
  const Fit found = fit({.sizes = fit_sizes(1, 4096), .budget_bytes = kBudget}, steps_of(net));
  ASSERT_TRUE(found.plain);
  EXPECT_GT(found.largest.size, found.plain->size);
  for (const FitPoint& point : {*found.plain, found.largest}) {
    EXPECT_TRUE(point.measured);
    EXPECT_GT(point.seconds, 0);
    EXPECT_GT(point.peak_bytes, kBudget / 2);
    EXPECT_LE(point.peak_bytes, kBudget);
  }
  Session session({.budget = Budget::bytes(kBudget)});  // as a training of that size would
  const FitStep run = steps_of(net)(found.largest.size);
  for (int i = 0; i < 2; ++i) {
    auto step = session.step();
    run();
  }
}

TEST(FitSteps, WhatTheFirstStepLeavesBehindIsThereForEverySize) {
  // Model and gradients are made for each size: along width, say.
  const MakeFitStep make_step = [](int64_t batch) { return steps_of(small_net())(batch); };
  constexpr int64_t kBudget = 8 << 20;
  const Fit anew = fit({.sizes = fit_sizes(1, 4096), .budget_bytes = kBudget}, make_step);
  const Fit same = fit({.sizes = fit_sizes(1, 4096), .budget_bytes = kBudget}, steps_of(small_net()));
  ASSERT_TRUE(anew.plain && same.plain);
  EXPECT_EQ(anew.plain->size, same.plain->size);
}

TEST(FitSteps, WithoutABudgetTheDevicesLimitHolds) {
  const Fit found = fit({.sizes = {2, 4, 8}}, steps_of(small_net()));
  EXPECT_EQ(found.largest.size, 8);
  EXPECT_GT(found.budget_bytes, 8 << 20);
}

TEST(FitSteps, WhatMakesNoSenseIsRefused) {
  const FitOptions options{.sizes = {1, 2}, .budget_bytes = 8 << 20};
  EXPECT_ERROR(fit(options, [](int64_t /*size*/) { return FitStep(); }), "[fit] make_step gave no step of size 2");
  EXPECT_ERROR(fit(options, MakeFitStep()), "[fit] there is no make_step");
  EXPECT_ERROR(fit(options, steps_of(small_net()), {.device = c10::kMeta}), "[fit] steps on meta take no time");
  EXPECT_ERROR(fit({.sizes = {}}, steps_of(small_net())), "[fit] ");
}

}  // namespace
}  // namespace remat::test

// Errors that leave remat inside TorchScript's interpreter arrive as what they are.
#include "support/compare.h"

#include <torch/jit.h>

namespace remat::test {
namespace {

TEST(TorchScriptErrors, ARefusalIsABudgetError) {
  const auto module = torch::jit::compile(R"(
    def forward(x, w):
        for i in range(4):
            x = torch.tanh(x @ w) * torch.sigmoid(x)
        return (x * x).sum()
    def fails(x):
        return x.view(3, 5)
  )");
  const auto x = torch::randn({128, 128}, torch::requires_grad()), w = torch::randn({128, 128}, torch::requires_grad());
  const auto forward = [&] { return module->run_method("forward", x, w).toTensor(); };
  for (int i = 0; i < 3; ++i) forward().backward();
  x.mutable_grad().reset();
  w.mutable_grad().reset();
  Session plain;
  {
    auto step = plain.step();
    forward().backward();
  }
  int in_forward = 0, in_backward = 0;
  for (int64_t extra = 1;; ++extra) {
    x.mutable_grad().reset();
    w.mutable_grad().reset();
    at::Tensor loss;
    Session session({.budget = Budget::bytes(memory::current() + extra * 128 * 128 * 4), .planner = "online"});
    try {
      auto step = session.step();
      loss = forward();
      loss.backward();
      break;
    } catch (const BudgetError& error) {
      EXPECT_GT(error.budget_bytes(), 0);
      ++(loss.defined() ? in_backward : in_forward);
    }
  }
  EXPECT_GT(in_forward, 0);
  EXPECT_GT(in_backward, 0);
  try {
    module->run_method("fails", torch::ones({2}));
    FAIL() << "did not throw";
  } catch (const std::exception& error) {  // as without remat
    EXPECT_NE(std::string(error.what()).find("TorchScript interpreter"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace remat::test

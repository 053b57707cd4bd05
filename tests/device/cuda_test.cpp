// Steps of a C++ program on a CUDA device. Where there is none they are skipped; with REMAT_REQUIRE_CUDA=1 they fail.
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <remat/remat.h>
#include <torch/torch.h>

#include "support/compare.h"

namespace remat {
namespace {

constexpr int64_t kMiB = 1 << 20;

class CudaSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) {
      const char* required = std::getenv("REMAT_REQUIRE_CUDA");
      if (required != nullptr && std::string_view(required) == "1") FAIL() << "LibTorch sees no CUDA device";
      GTEST_SKIP() << "LibTorch sees no CUDA device";
    }
    was_deterministic_ = at::globalContext().deterministicAlgorithms();
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    torch::manual_seed(0);
    for (int i = 0; i < 8; ++i) {
      model_->push_back(torch::nn::Linear(256, 1024));
      model_->push_back(torch::nn::GELU());
      model_->push_back(torch::nn::Dropout(0.1));
      model_->push_back(torch::nn::Linear(1024, 256));
    }
    model_->to(kDevice);
    x_ = torch::randn({8192, 256}).to(kDevice);
  }
  void TearDown() override {
    if (x_.defined()) at::globalContext().setDeterministicAlgorithms(was_deterministic_, true);
  }

  /// What a training step leaves behind.
  std::vector<at::Tensor> train() {
    torch::manual_seed(7);
    model_->zero_grad();
    const auto loss = model_->forward(x_).square().mean();
    loss.backward();
    std::vector<at::Tensor> left{loss.detach().cpu()};
    for (const auto& parameter : model_->parameters()) left.push_back(parameter.grad().cpu());
    return left;
  }

  static Session session(const Budget& budget) { return Session({.budget = budget, .device = kDevice}); }

  inline static const at::Device kDevice{at::kCUDA, 0};
  torch::nn::Sequential model_;
  at::Tensor x_;

 private:
  bool was_deterministic_ = false;
};

void expect_equal(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(values.size(), others.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(test::same_bits(values[i], others[i])) << i;
}

TEST_F(CudaSteps, HaveThePlainStepsBitsUnderABudget) {
  train();  // what cuBLAS allocates once
  const int64_t before = memory::current(kDevice);
  memory::reset_peak(kDevice);
  const auto plain = train();
  const int64_t rise = memory::peak(kDevice) - before;
  ASSERT_GT(rise, 256 * kMiB);
  expect_equal(train(), plain);
  auto ours = session(Budget::percent(50));
  for (int i = 0; i < 4; ++i) {
    auto step = ours.step();
    expect_equal(train(), plain);
    const StepReport report = step.end();
    EXPECT_LE(report.peak_bytes, report.budget_bytes);
    EXPECT_GT(report.operators_replayed, 0);
    if (i > 0) {
      EXPECT_LT(report.budget_bytes, before + rise);
    }
  }
}

TEST_F(CudaSteps, KeepWhatIsReservedUnderABudgetInBytes) {
  train();
  const int64_t before = memory::current(kDevice);
  memory::release_cached(kDevice);
  const int64_t budget = before + 400 * kMiB;
  auto ours = session(Budget::bytes(budget));
  for (int i = 0; i < 4; ++i) {
    auto step = ours.step();
    train();
    const StepReport report = step.end();
    EXPECT_LE(report.peak_bytes, budget);
    EXPECT_GT(report.reserved_peak_bytes, 0);
    EXPECT_LE(report.reserved_peak_bytes, budget);
  }
}

TEST_F(CudaSteps, RefuseWhatDoesNotFitAndLeaveNothing) {
  train();
  model_->zero_grad();
  const int64_t before = memory::current(kDevice);
  {
    auto ours = session(Budget::bytes(before + 8 * kMiB));
    auto step = ours.step();
    EXPECT_THROW(train(), BudgetError);
  }
  model_->zero_grad();
  EXPECT_EQ(memory::current(kDevice), before);
}

}  // namespace
}  // namespace remat

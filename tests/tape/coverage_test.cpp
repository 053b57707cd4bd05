// Which bytes slices fill: against a list of bytes, one by one.
#include "tape/coverage.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace remat {
namespace {

const c10::TensorImpl& impl_of(const at::Tensor& tensor) { return *tensor.unsafeGetTensorImpl(); }

/// The coverage of `whole`'s storage after `slices` are written to.
Coverage coverage_of(const at::Tensor& whole, const std::vector<at::Tensor>& slices) {
  Coverage coverage(static_cast<int64_t>(whole.storage().nbytes()));
  for (const auto& slice : slices) {
    if (const auto strip = strip_of(impl_of(slice))) coverage.add(*strip);
  }
  return coverage;
}

TEST(Coverage, IsCompleteWhenTheSlicesOfAnyDimensionAre) {
  for (int64_t dim = 0; dim < 4; ++dim) {
    const at::Tensor whole = torch::empty({4, 3, 2, 5});
    std::vector<at::Tensor> slices;
    for (int64_t i = whole.size(dim) - 1; i >= 0; --i) {
      EXPECT_FALSE(coverage_of(whole, slices).is_complete()) << dim;
      slices.push_back(whole.select(dim, i));
      EXPECT_TRUE(coverage_of(whole, slices).covers(impl_of(whole.narrow(dim, i, whole.size(dim) - i)))) << dim;
      if (i > 0) {
        EXPECT_FALSE(coverage_of(whole, slices).covers(impl_of(whole.narrow(dim, i - 1, 1)))) << dim;
      }
    }
    EXPECT_TRUE(coverage_of(whole, slices).is_complete()) << dim;
    EXPECT_TRUE(coverage_of(whole, slices).covers(impl_of(whole.permute({2, 0, 3, 1})))) << dim;
  }
}

TEST(Coverage, OfTheWholeIsCompleteWhateverWasThereBefore) {
  const at::Tensor whole = torch::empty({4, 3});
  EXPECT_TRUE(coverage_of(whole, {whole.select(1, 0), whole}).is_complete());
  EXPECT_TRUE(coverage_of(whole, {whole.t()}).is_complete());
}

TEST(Coverage, ElementsThatShareMemoryAreNoStrip) {
  EXPECT_FALSE(strip_of(impl_of(torch::empty({4}).expand({3, 4}))));
  EXPECT_FALSE(strip_of(impl_of(torch::empty({8}).as_strided({3, 4}, {2, 1}))));
}

TEST(Coverage, NeverClaimsAByteThatNoSliceReaches) {
  std::mt19937 random(1);
  const auto below = [&](int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random); };
  int covered = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const at::Tensor whole = torch::zeros({1 + below(4), 1 + below(4), 1 + below(4)}, torch::kByte);
    const auto any_view = [&] {
      at::Tensor view = whole;
      for (int64_t cuts = below(3); cuts >= 0; --cuts) {
        const int64_t dim = below(3);
        const int64_t from = below(view.size(dim));
        view = view.slice(dim, from, from + 1 + below(view.size(dim) - from), 1 + below(2));
      }
      return view;
    };
    std::vector<at::Tensor> slices;
    for (int64_t i = 1 + below(6); i > 0; --i) {
      slices.push_back(any_view());
      slices.back().fill_(1);
    }
    const Coverage coverage = coverage_of(whole, slices);
    if (coverage.is_complete()) {
      ASSERT_TRUE(whole.all().item<bool>()) << trial;
    }
    for (int i = 0; i < 5; ++i) {
      const at::Tensor view = any_view();
      if (!coverage.covers(impl_of(view))) continue;
      ++covered;
      ASSERT_TRUE(view.all().item<bool>()) << trial << ": sizes " << view.sizes() << ", strides " << view.strides();
    }
  }
  EXPECT_GT(covered, 1000);
}

}  // namespace
}  // namespace remat

// Assignments to `.data` are seen; all else that PyTorch asks its hooks is as before.
#include "observe/variable_hooks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/recording.h"

namespace remat::test {
namespace {

TEST(VariableHooks, TellTapesOfDataThatIsReplaced) {
  install_variable_hooks();
  const auto x = torch::randn({4}).requires_grad_();
  const Recording recording;
  at::Tensor y = x * 2;
  const auto other = torch::randn({4});
  ++recording.tape().saves;
  y.set_data(other);
  const c10::TensorImpl* const impl = y.unsafeGetTensorImpl();
  EXPECT_TRUE(recording.tape().is_replaced(impl, impl->version_counter(), /*saved_at=*/0));
  EXPECT_EQ(y.data_ptr(), other.data_ptr()) << "and it is";
}

TEST(VariableHooks, LeaveTheRestToPyTorchs) {
  install_variable_hooks();
  auto x = torch::randn({4}).requires_grad_();
  at::Tensor y = x * 2;
  const at::Tensor view = y.view({2, 2});
  EXPECT_TRUE(x.is_leaf() && !y.is_leaf());
  EXPECT_TRUE(y.grad_fn()->name().starts_with("MulBackward"));
  EXPECT_TRUE(view.is_view());
  EXPECT_EQ(view._base().unsafeGetTensorImpl(), y.unsafeGetTensorImpl());
  y.retain_grad();
  EXPECT_TRUE(y.retains_grad());
  int calls = 0;
  const unsigned removed = y.register_hook([&](const at::Tensor&) { calls += 10; });
  y.register_hook([&](const at::Tensor&) { ++calls; });
  y.remove_hook(removed);
  y.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({4}, 2.0F)));
  EXPECT_TRUE(torch::equal(y.grad(), torch::ones({4})));
  y.detach_().add_(1);
  EXPECT_EQ(y._version(), 1);
}

}  // namespace
}  // namespace remat::test

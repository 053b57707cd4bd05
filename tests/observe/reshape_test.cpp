// Operators that change sizes and strides in place.
#include "observe/reshape.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/recording.h"

namespace remat::test {
namespace {

TEST(Reshape, IsNoWrite) {
  const auto x = torch::randn({4, 1});
  const Recording recording;
  const at::Tensor y = x * 2;
  const ValueId before = recording.id_of(y);
  y.squeeze_();
  EXPECT_EQ(y._version(), 1) << "autograd counts it as one";
  EXPECT_EQ(recording.id_of(y), before);
  EXPECT_FALSE(recording.value_of(y).is_written_unseen());
  EXPECT_EQ(recording.tape().program.size(), 1U);
}

TEST(Reshape, OfUnknownTensorsIsNothing) {
  const auto unknown = torch::randn({4, 1});
  const Recording recording;
  EXPECT_EQ(begin_reshape(recording.tape(), unknown), nullptr);
  EXPECT_EQ(begin_reshape(recording.tape(), at::Tensor()), nullptr);
}

TEST(Reshape, HidesNoOtherWrite) {
  Recording recording;
  const at::Tensor y = torch::ones({4, 1}) * 2;
  const auto context = begin_reshape(recording.tape(), y);
  ASSERT_NE(context, nullptr);
  for (int i = 0; i < 2; ++i) y.unsafeGetTensorImpl()->bump_version();  // its own, and another thread's
  end_reshape(recording.tape(), *context);
  EXPECT_TRUE(recording.value_of(y).is_written_unseen());
  EXPECT_EQ(begin_reshape(recording.tape(), y), nullptr) << "its contents are not known";
}

}  // namespace
}  // namespace remat::test

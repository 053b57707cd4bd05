// What happens to tensors on any thread is told to all tapes.
#include "observe/tapes.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/recording.h"

namespace remat::test {
namespace {

TEST(Tapes, ExistUntilTheLastReferenceIsGone) {
  ASSERT_FALSE(Tapes::all().exist()) << "a test before this one has left a tape";
  auto first = Tapes::all().make(), second = Tapes::all().make();
  first.reset();
  EXPECT_TRUE(Tapes::all().exist());
  second.reset();
  EXPECT_FALSE(Tapes::all().exist());
}

TEST(Tapes, AreToldOfMemoryThatIsHandedOut) {
  const auto x = torch::randn({4});
  for (const bool knows_better : {false, true}) {
    const Recording recording;
    const at::Tensor y = x * 2;
    Tapes::all().hand_out(y, knows_better ? &recording.tape() : nullptr);
    EXPECT_EQ(recording.value_of(y).watch.exported, knows_better ? Exported::kNo : Exported::kNow);
  }
  Tapes::all().hand_out(x);  // nobody is there
}

TEST(Tapes, AreToldOfDataThatIsReplaced) {
  const auto x = torch::randn({4}).requires_grad_();
  const Recording recording;
  at::Tensor y = x * 2;
  const auto is_replaced = [&] {
    const c10::TensorImpl* const impl = y.unsafeGetTensorImpl();
    return recording.tape().is_replaced(impl, impl->version_counter(), /*saved_at=*/0);
  };
  EXPECT_FALSE(is_replaced());
  ++recording.tape().saves;
  Tapes::all().replace_data(y, torch::randn({4}));
  EXPECT_TRUE(is_replaced());
}

}  // namespace
}  // namespace remat::test

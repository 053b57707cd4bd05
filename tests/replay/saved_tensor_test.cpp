// What stands in the place of a tensor that autograd saves.
#include "replay/saved_tensor.h"

#include "support/compare.h"
#include "support/expect_error.h"
#include "support/recording.h"

namespace remat::test {
namespace {

class SavedTensorTest : public testing::Test {
 protected:
  std::unique_ptr<SavedTensor> save(const at::Tensor& tensor) const {
    auto saved = std::make_unique<SavedTensor>(recording.shared());
    saved->call_pack_hook(tensor);
    return saved;
  }

  const at::Tensor x = torch::randn({16}).requires_grad_();
  Recording recording;
};

TEST_F(SavedTensorTest, OfALeafIsThatTensor) {
  const auto saved = save(x);
  EXPECT_EQ(saved->call_unpack_hook().unsafeGetTensorImpl(), x.unsafeGetTensorImpl());
}

TEST_F(SavedTensorTest, OfAnUnknownTensorHoldsIt) {
  const Recorder::Suspension unseen;
  at::Tensor unknown = x * 2;
  const auto expected = unknown.detach().clone();
  const auto saved = save(unknown);
  unknown.reset();
  EXPECT_TRUE(same_bits(saved->call_unpack_hook(), expected));
  EXPECT_EQ(recording.tape().live_values(), 0);
}

TEST_F(SavedTensorTest, RefersToItsValueUntilItIsGone) {
  at::Tensor y = x * 2;
  const ValueId id = recording.id_of(y);
  auto saved = save(y);
  EXPECT_EQ(recording.tape().values[id].needs.saved, 1U);
  y.reset();
  EXPECT_NE(recording.tape().values.alive(id), nullptr) << "the record holds it";
  saved.reset();
  EXPECT_EQ(recording.tape().live_values(), 0);
  EXPECT_EQ(recording.tape().values.alive(id), nullptr);
}

TEST_F(SavedTensorTest, OfAnEvictedValueHasItRecomputed) {
  at::Tensor y = (x * 2).view({4, 4}).t();
  const ValueId id = recording.id_of(y);
  const auto saved = save(y);
  y.reset();
  {
    const std::lock_guard lock(recording.tape().mutex);
    recording.tape().values.evict(id);
  }
  EXPECT_TRUE(same_bits(saved->call_unpack_hook(), (x.detach() * 2).view({4, 4}).t())) << "a view of it, as it was";
  EXPECT_EQ(recording.tape().counts.replays, 1);
}

TEST_F(SavedTensorTest, ThatWasWrittenToIsRefused) {
  const at::Tensor y = x * 2;
  const auto saved = save(y);
  {
    const at::NoGradGuard no_grad;
    y.add_(1);
  }
  EXPECT_ERROR(
      saved->call_unpack_hook(),
      "of shape [16] has been modified by an in-place operation: it is at version 1, it was saved at version 0");
}

TEST_F(SavedTensorTest, WhoseDataWasReplacedIsRefused) {
  const at::Tensor y = x * 2;
  const auto saved = save(y);
  Tapes::all().replace_data(y, torch::randn({16}));
  EXPECT_ERROR(saved->call_unpack_hook(), "was given other contents by assigning to its .data");
}

/// An operator saves its result before it has ended: see CallWriter::bind_later().
TEST_F(SavedTensorTest, OfAResultIsBoundWhenItsOperatorHasEnded) {
  at::Tensor y = x.exp();
  const ValueId id = recording.id_of(y);
  EXPECT_EQ(recording.tape().values[id].needs.saved, 1U);
  y.reset();  // and its graph with it
  EXPECT_EQ(recording.tape().values[id].needs.saved, 0U);
}

}  // namespace
}  // namespace remat::test

// Evicted values are recomputed from what is there.
#include "replay/replay.h"

#include "support/compare.h"
#include "support/expect_error.h"
#include "support/recording.h"

namespace remat::test {
namespace {

/// sin() of a product: both the product and exp() of it are saved, and nobody else has them.
class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    const Recording recording;
    tape = recording.shared();
    const at::Tensor made = x * 1.5, later = made.exp();
    product = recording.id_of(made);
    exponential = recording.id_of(later);
    y = made.sin() + later.sin();
  }
  void evict(ValueId id) const {
    const std::lock_guard lock(tape->mutex);
    tape->values.evict(id);
  }
  at::Tensor recomputed(ValueId id) const { return TensorView(*x.unsafeGetTensorImpl()).over(materialize(*tape, id)); }

  const at::Tensor x = torch::randn({64}).requires_grad_();
  std::shared_ptr<Tape> tape;
  ValueId product = kNoId, exponential = kNoId;
  at::Tensor y;
};

TEST_F(ReplayTest, GivesTheSameBits) {
  evict(product);
  EXPECT_EQ(tape->values.alive(product), nullptr);
  EXPECT_TRUE(same_bits(recomputed(product), x.detach() * 1.5));
  EXPECT_EQ(tape->counts.replays, 1);
}

TEST_F(ReplayTest, BeginsAtTheNearestValuesThatAreThere) {
  evict(exponential);
  EXPECT_TRUE(same_bits(recomputed(exponential), (x.detach() * 1.5).exp()));
  EXPECT_EQ(tape->counts.replays, 1) << "the product was there";
}

TEST_F(ReplayTest, GoesBackAsFarAsItHasTo) {
  evict(exponential);
  evict(product);
  EXPECT_TRUE(same_bits(recomputed(exponential), (x.detach() * 1.5).exp()));
  EXPECT_EQ(tape->counts.replays, 2);
  EXPECT_NE(tape->values.alive(product), nullptr) << "what comes by is kept while it is to be asked for";
}

TEST_F(ReplayTest, OfWhatIsThereIsNone) {
  const StoragePtr storage = tape->values.alive(product);
  EXPECT_EQ(materialize(*tape, product), storage);
  EXPECT_EQ(tape->counts.replays, 0);
}

TEST_F(ReplayTest, FromOtherContentsIsRefused) {
  evict(product);
  {
    const at::NoGradGuard no_grad;
    x.add_(1);  // nothing is recorded any more
  }
  EXPECT_ERROR(materialize(*tape, product), " cannot be repeated: a parameter of shape [64] was modified in place");
}

}  // namespace
}  // namespace remat::test

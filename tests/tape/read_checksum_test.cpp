// A frozen weight is hashed by a sample once steps have found it unchanged; nothing else is.
#include "tape/read_checksum.h"

#include "support/compare.h"

namespace remat::test {
namespace {

constexpr int64_t kBetweenSamples = 1000;  // an element that no sample has

uint64_t read(const at::Tensor& tensor, uint64_t step) { return read_checksum(*tensor.unsafeGetTensorImpl(), step); }

class ReadChecksum : public testing::Test {
 protected:
  ReadChecksum() { memory::start_accounting(); }

  at::Tensor weight_ = torch::randn({256, 256});
  float* data_ = weight_.data_ptr<float>();
};

TEST_F(ReadChecksum, OneStepTellsNothing) {
  const uint64_t first = read(weight_, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(weight_, 1), first);
  data_[kBetweenSamples] += 1;
  EXPECT_NE(read(weight_, 1), first);
}

TEST_F(ReadChecksum, OfAPolicyScopeIsAlwaysOfAll) {
  const uint64_t first = read(weight_, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(weight_, 0), first);
  data_[kBetweenSamples] += 1;
  EXPECT_NE(read(weight_, 0), first);
}

TEST_F(ReadChecksum, AfterThreeStepsItIsOfASample) {
  const uint64_t first = read(weight_, 1);
  for (uint64_t step = 2; step <= 3; ++step) EXPECT_EQ(read(weight_, step), first);
  data_[kBetweenSamples] += 1;
  EXPECT_EQ(read(weight_, 4), first) << "the promise is speed; a replay compares with all of it";
  forget_constant(*weight_.unsafeGetTensorImpl());
  EXPECT_NE(read(weight_, 4), first);
}

TEST_F(ReadChecksum, WhatChangedOnceIsHashedInFullEverAfter) {
  read(weight_, 1);
  data_[kBetweenSamples] += 1;
  const uint64_t changed = read(weight_, 2);
  for (uint64_t step = 3; step <= 9; ++step) EXPECT_EQ(read(weight_, step), changed);
  data_[kBetweenSamples] += 1;
  EXPECT_NE(read(weight_, 10), changed);
}

/// An input that the user fills through a pointer before each step, in few places, and that three layers read.
TEST_F(ReadChecksum, ABufferThatIsFilledBetweenStepsIsAnInputLikeAnyOther) {
  const auto buffer = torch::zeros({64, 1024});
  auto* const elements = buffer.data_ptr<float>();
  const auto step = [&](int place) {
    elements[kBetweenSamples + place] = 5;
    torch::manual_seed(1);
    const auto w = torch::randn({1024, 16}).requires_grad_();
    auto h = torch::ones({64, 16});
    for (int i = 0; i < 3; ++i) h = h * buffer.mm(w).sigmoid();
    h.sum().backward();
    elements[kBetweenSamples + place] = 0;
    return w.grad();
  };
  Session session;
  for (int place = 0; place < 4; ++place) {
    const auto plain = step(place);
    auto recorded = session.step();
    const PolicyScope scope(Policy::drop_all());
    EXPECT_TRUE(same_bits(step(place), plain)) << place;
  }
}

}  // namespace
}  // namespace remat::test

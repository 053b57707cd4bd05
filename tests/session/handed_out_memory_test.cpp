// Python's .numpy() hands out a tensor's memory, and marks the storage as not resizable. Nobody sees what is written
// there.
#include "support/compare.h"

namespace remat::test {
namespace {

float* hand_out(const at::Tensor& tensor) {
  tensor.storage().unsafeGetStorageImpl()->set_resizable(false);
  return tensor.mutable_data_ptr<float>();
}

Outcome gradients(const std::vector<at::Tensor>& leaves) {
  Outcome outcome;
  for (const auto& leaf : leaves) outcome.add("grad", leaf.grad());
  return outcome;
}

at::Tensor input(c10::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

void expect_exact_under_drop_all(const Program& program) {
  torch::manual_seed(7);
  const Outcome plain = program();
  torch::manual_seed(7);
  Session session;
  auto step = session.step();
  const PolicyScope scope(Policy::drop_all());
  expect_same_bits(plain, program(), "drop all");
  EXPECT_GT(step.end().values_dropped, 0);
}

TEST(HandedOutMemory, WrittenToAfterItWasReadIsNotReadByReplays) {
  expect_exact_under_drop_all([] {
    auto x = input({8, 8}), w = input({8, 8});
    const auto y = x.mm(w);
    auto loss = (y * 3).sin().sum();  // a replay of y * 3 reads y
    hand_out(y)[0] = 100;
    loss.backward();
    return gradients({x, w});
  });
}

TEST(HandedOutMemory, WrittenToBeforeItIsReadIsReadAsItIs) {
  expect_exact_under_drop_all([] {
    auto x = input({8, 8}), w = input({8, 8});
    const auto y = x.mm(w);
    hand_out(y)[0] = 100;
    auto loss = (y * 3).sin().sum();
    loss.backward();
    return gradients({x, w});
  });
}

TEST(HandedOutMemory, WrittenToBetweenTwoReads) {
  expect_exact_under_drop_all([] {
    auto x = input({8, 8}), w = input({8, 8});
    const auto y = x.mm(w);
    auto loss = (y * 3).sin().sum();
    hand_out(y)[0] = 100;
    loss = loss + (y * 2).cos().sum();
    loss.backward();
    return gradients({x, w});
  });
}

TEST(HandedOutMemory, OfASavedValueIsSeenByBackwardAsInPlain) {
  expect_exact_under_drop_all([] {
    auto x = input({8, 8}), w = input({8, 8});
    const auto y = x.mm(w).exp();
    auto loss = ((y.sin() * 2).cos() * 3).sum();  // both exp and sin have saved y
    hand_out(y)[0] = 0.5F;
    loss.backward();
    return gradients({x, w});
  });
}

TEST(HandedOutMemory, OnlyLookedAtCostsNothingButTime) {
  expect_exact_under_drop_all([] {
    auto x = input({8, 8}), w = input({8, 8});
    auto y = x.mm(w);
    auto loss = (y * 3).sin().sum();
    EXPECT_NE(hand_out(y)[0], 100);
    y = at::Tensor();  // and given up
    loss.backward();
    return gradients({x, w});
  });
}

TEST(HandedOutMemory, WrittenToAndGivenUpIsAnError) {
  torch::manual_seed(7);
  Session session;
  const auto step = session.step();
  const PolicyScope scope(Policy::drop_all());
  auto x = input({8, 8}), w = input({8, 8});
  auto y = x.mm(w).exp();
  auto loss = y.sin().sum();
  hand_out(y)[0] = 100;
  y = at::Tensor();
  try {
    loss.backward();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("aten::exp gave other bits than before"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace remat::test

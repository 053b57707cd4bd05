// Operators that are not PyTorch's: those that do what their schemas say are dropped and repeated, others are held.
#include "observe/operator_trial.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "support/compare.h"
#include "support/kernels.h"

namespace remat::test {
namespace {

int calls = 0;
at::Tensor remembered;

at::Tensor halved(const at::Tensor& x) { return times(x, 0.5F); }

at::Tensor honest(const at::Tensor& x) {
  ++calls;
  return halved(x);
}
/// Writes to `x`, and says nothing.
at::Tensor liar(const at::Tensor& x) {
  ++calls;
  auto y = halved(x);
  auto* const data = static_cast<float*>(x.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) data[i] *= 0.25F;
  return y;
}
/// Becomes a liar with its third call.
at::Tensor late_liar(const at::Tensor& x) {
  if (calls >= 2) return liar(x);
  ++calls;
  return halved(x);
}
at::Tensor forwarding(const at::Tensor& x) {
  ++calls;
  return x;
}
at::Tensor counting(const at::Tensor& x) {
  auto y = halved(x);
  y.data_ptr<float>()[0] += static_cast<float>(++calls);
  return y;
}
/// Its kernel calls an operator that autocast casts the arguments of, unseen.
at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  ++calls;
  const at::AutoDispatchBelowAutograd below_autograd;
  return at::mm(x, w).to(at::kFloat);
}
/// Changes its argument later, when it is told to: as communication does that is waited for.
at::Tensor begin_write(const at::Tensor& x) {
  remembered = x;
  return at::zeros({1});
}
void end_write() {
  auto* const data = static_cast<float*>(remembered.data_ptr());
  for (int64_t i = 0; i < remembered.numel(); ++i) data[i] += 1;
  remembered = at::Tensor();
}

TORCH_LIBRARY(remat_trial, m) {
  for (const char* name : {"honest", "liar", "leaf_liar", "late_liar", "forwarding", "counting", "begin_write"}) {
    m.def((std::string(name) + "(Tensor x) -> Tensor").c_str());
  }
  m.def("declared_late(Tensor x) -> Tensor");
  m.def("product(Tensor x, Tensor w) -> Tensor");
  m.def("composite(Tensor x) -> Tensor", [](const at::Tensor& x) { return x.sin(); });
}
TORCH_LIBRARY_IMPL(remat_trial, CPU, m) {
  m.impl("honest", honest);
  m.impl("liar", liar);
  m.impl("leaf_liar", liar);
  m.impl("late_liar", late_liar);
  m.impl("forwarding", forwarding);
  m.impl("counting", counting);
  m.impl("begin_write", begin_write);
  m.impl("declared_late", honest);
  m.impl("product", product);
}

at::Tensor call_own(const std::string& name, const at::Tensor& x) { return call("remat_trial::" + name, x); }

/// Products before and after the operator, whose gradients need what it reads and what it gives. (It has no gradient of
/// its own: that of the rest is what counts.)
Program around(const char* name, int layers = 2) {
  return [=] {
    calls = 0;
    Outcome outcome;
    const auto w = torch::randn({16, 16}, at::requires_grad());
    auto x = torch::randn({8, 16});
    for (int i = 0; i < layers; ++i) {
      const auto product = x.mm(w);
      const auto given = call_own(name, product.detach());
      x = (product * given).tanh() + product.square();
    }
    x.sum().backward();
    outcome.add("loss", x);
    outcome.add("gradient", w.grad());
    outcome.add_generator();
    return outcome;
  };
}

int calls_when_dropped(const Program& program) {
  const PolicyScope scope(Policy::drop_all());
  run_seeded(program);
  return calls;
}

TEST(OperatorTrial, AnHonestOperatorIsRepeated) {
  expect_exact(around("honest"));
  EXPECT_GT(calls_when_dropped(around("honest")), 2);
}

TEST(OperatorTrial, AnOperatorThatWritesWithoutSayingSoRunsOnceFromItsFirstCallOn) {
  EXPECT_EQ(calls_when_dropped(around("liar")), 2);
  expect_exact(around("liar"));
}

TEST(OperatorTrial, AnOperatorThatGivesBackItsInputRunsOnce) {
  EXPECT_EQ(calls_when_dropped(around("forwarding")), 2);
  expect_exact(around("forwarding"));
}

TEST(OperatorTrial, WhatWasDroppedBeforeAnOperatorShowedItselfIsAnErrorOnce) {
  const auto program = around("late_liar", 4);
  const Outcome plain = run_seeded(program);
  const auto dropping = [&] {
    const PolicyScope scope(Policy::drop_all());
    return run_seeded(program);
  };
  try {
    dropping();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("remat_trial::late_liar cannot be repeated"), std::string::npos)
        << error.what();
  }
  expect_same_bits(plain, dropping(), "the step after it");
}

TEST(OperatorTrial, ALeafThatWasWrittenToUnseenIsAnErrorOnce) {
  // `x` is no operator's result: there is no way to make it again.
  const auto program = [] {
    Outcome outcome;
    const auto w = torch::randn({16, 16}, at::requires_grad());
    const auto x = torch::randn({16, 16});
    const auto y = x.mm(w).sigmoid().square();
    (y * call_own("leaf_liar", x)).sum().backward();
    outcome.add("gradient", w.grad());
    return outcome;
  };
  const Outcome plain = run_seeded(program);
  const PolicyScope scope(Policy::drop_all());
  EXPECT_THROW(run_seeded(program), Error);
  expect_same_bits(plain, run_seeded(program), "what it writes to is copied before, now that it is known");
}

TEST(DeclaredOperators, OneThatIsNotRepeatableRunsOnce) {
  declare_not_repeatable("remat_trial::counting");
  EXPECT_EQ(calls_when_dropped(around("counting")), 2);
  expect_exact(around("counting"));
}

TEST(DeclaredOperators, WhatAnotherWritesToLaterIsHeld) {
  declare_not_repeatable("remat_trial::begin_write", /*writes_arguments=*/true);
  expect_exact([] {
    Outcome outcome;
    const auto w = torch::randn({16, 16}, at::requires_grad());
    const auto product = torch::randn({8, 16}).mm(w);
    call_own("begin_write", product.detach());
    end_write();
    product.sin().sum().backward();
    outcome.add("gradient", w.grad());
    return outcome;
  });
}

TEST(DeclaredOperators, WhatIsSaidTwiceHoldsAsSaidLast) {
  declare_not_repeatable("remat_trial::declared_late");
  EXPECT_EQ(calls_when_dropped(around("declared_late")), 2);
  declare_repeatable("remat_trial::declared_late");
  EXPECT_GT(calls_when_dropped(around("declared_late")), 2);
}

TEST(DeclaredOperators, NamesThatCannotBeMeantAreErrors) {
  EXPECT_THROW(declare_repeatable("remat_trial::no_such"), Error);
  EXPECT_THROW(declare_not_repeatable("remat_trial::composite"), Error);
  EXPECT_THROW(declare_repeatable("aten::view"), Error);
}

TEST(ForeignOperators, AutocastInsideAKernelIsThatOfTheFirstCall) {
  expect_exact([] {
    Outcome outcome;
    const auto w = torch::randn({64, 64}, at::requires_grad());
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto x = torch::randn({64, 64});
    auto y = (x * call("remat_trial::product", x, w.detach())).tanh();
    y = w * y.sin();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    y.sum().backward();
    outcome.add("gradient", w.grad());
    return outcome;
  });
}

}  // namespace
}  // namespace remat::test

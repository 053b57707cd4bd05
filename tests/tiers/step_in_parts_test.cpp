// Steps of optimizers in parts, against their own.
#include <remat/step_in_parts.h>

#include <remat/memory.h>

#include "support/expect_error.h"
#include "tiers/optimizers.h"

namespace remat::test {
namespace {

void step(const std::vector<at::Tensor>& parameters, int number, const std::function<void()>& update) {
  loss_of(parameters, number).backward();
  update();
  for (const auto& parameter : parameters) parameter.mutable_grad().reset();
}

TEST(StepInParts, HasTheBitsOfTheWhole) {
  for (const Kind& kind : kinds()) {
    const auto plain = make_parameters(), ours = make_parameters();
    const auto expected = kind.make(plain), optimizer = kind.make(ours);
    for (int i = 0; i < 4; ++i) {
      step(plain, i, [&] { expected->step(); });
      // The optimizer's own step goes on from the state that parts have left, and the other way about.
      step(ours, i, [&] { i == 2 ? static_cast<void>(optimizer->step()) : step_in_parts(*optimizer); });
      for (size_t p = 0; p < plain.size(); ++p) ASSERT_TRUE(ours[p].equal(plain[p])) << kind.name << ", step " << i;
    }
    ASSERT_EQ(optimizer->state().size(), expected->state().size()) << kind.name;
    for (size_t p = 0; p < plain.size(); ++p) {
      const auto theirs = expected->state().find(plain[p].unsafeGetTensorImpl());
      if (theirs == expected->state().end()) continue;
      const auto own = optimizer->state().find(ours[p].unsafeGetTensorImpl());
      EXPECT_TRUE(kind.equal(*own->second, *theirs->second)) << kind.name << ", parameter " << p;
    }
  }
}

TEST(StepInParts, HasTheBitsOfTheWholeInOtherTypes) {
  for (const auto type : {at::kDouble, at::kBFloat16, at::kHalf}) {
    torch::manual_seed(2);
    const auto plain = torch::randn(3000017).to(type).requires_grad_(), ours = plain.detach().clone().requires_grad_();
    torch::optim::SGD expected({plain}, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
    torch::optim::SGD optimizer({ours}, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
    for (int i = 0; i < 3; ++i) {
      const auto gradient = torch::randn(3000017).to(type);
      plain.mutable_grad() = gradient.clone();
      ours.mutable_grad() = gradient;
      expected.step();
      step_in_parts(optimizer);
      ASSERT_TRUE(ours.equal(plain)) << type << ", step " << i;
    }
  }
}

TEST(StepInParts, TakesLittleForAMoment) {
  memory::start_accounting();
  const auto weight = torch::zeros({4096, 4096}).requires_grad_();  // 64 MiB
  torch::optim::AdamW optimizer({weight});
  const auto most_during = [&](const std::function<void()>& update) {
    weight.mutable_grad() = torch::ones_like(weight);
    const int64_t before = memory::current();
    memory::reset_peak();
    update();
    return memory::peak() - before;
  };
  step_in_parts(optimizer);  // without a gradient nothing is done
  EXPECT_TRUE(optimizer.state().empty());
  most_during([&] { step_in_parts(optimizer); });
  EXPECT_LT(most_during([&] { step_in_parts(optimizer); }), 20 << 20);
  EXPECT_GT(most_during([&] { optimizer.step(); }), 100 << 20);
}

TEST(StepInParts, WhatHasNoPartsIsUpdatedAtOnce) {
  const auto column_major = torch::randn({2048, 2048}).t().requires_grad_();
  const auto copy = column_major.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
  ASSERT_FALSE(copy.is_contiguous());
  torch::optim::AdamW plain({copy}), ours({column_major});
  for (int i = 0; i < 2; ++i) {
    step({copy}, i, [&] { plain.step(); });
    step({column_major}, i, [&] { step_in_parts(ours); });
  }
  EXPECT_TRUE(column_major.equal(copy));
}

TEST(StepInParts, IsForOptimizersThatLookAtEachElementAlone) {
  torch::optim::LBFGS optimizer({torch::zeros(3)});
  EXPECT_ERROR(step_in_parts(optimizer), "[step in parts] this optimizer may look at several parameters at once");
}

}  // namespace
}  // namespace remat::test

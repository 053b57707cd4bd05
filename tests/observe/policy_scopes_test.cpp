#include "observe/policy_scopes.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace remat {
namespace {

PolicyRules rules(Policy::Rules::Kind kind) {
  return std::make_shared<const Policy::Rules>(Policy::Rules{.kind = kind, .names = {}});
}
const PolicyRules kKeep = rules(Policy::Rules::Kind::kKeepAll), kDrop = rules(Policy::Rules::Kind::kDropAll);

/// The inputs of an operator that reads `tensor`, among others.
struct Reading {
  explicit Reading(const at::Tensor& tensor) : inputs{torch::ones({2}), tensor} {}
  operator c10::ArrayRef<const c10::IValue>() const {
    return c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size());
  }
  std::vector<c10::IValue> inputs;
};
Reading reading(const at::Tensor& tensor) { return Reading(tensor); }

TEST(PolicyScopes, TheInnermostThatHasRulesDecides) {
  PolicyScopes scopes;
  EXPECT_EQ(scopes.rules(), nullptr);
  EXPECT_EQ(scopes.outermost(), PolicyScopes::Region());
  const auto outer = scopes.open(kKeep);
  const auto inner = scopes.open(kDrop);
  EXPECT_EQ(scopes.rules(), kDrop.get());
  EXPECT_EQ(scopes.outermost().scope, outer);
  scopes.close(outer);  // not in the order in which they began
  EXPECT_EQ(scopes.rules(), kDrop.get());
  EXPECT_EQ(scopes.outermost().scope, inner);
  scopes.close(inner);
  scopes.close(inner);
  EXPECT_EQ(scopes.rules(), nullptr);
}

TEST(PolicyScopes, FollowTheModulesWhoseParametersAreRead) {
  const auto first = torch::ones({4}), second = torch::ones({4}), other = torch::ones({4});
  ModulePlaces modules;
  modules.add(first, {.region = 1, .rules = kDrop});
  modules.add(second, {.region = 2, .rules = kKeep});
  modules.add(other, {});
  PolicyScopes scopes;
  const auto id = scopes.open(std::move(modules));
  EXPECT_TRUE(scopes.follow_modules());
  EXPECT_EQ(scopes.rules(), nullptr) << "no module has begun";
  scopes.enter_module(reading(first.slice(0, 1)));
  EXPECT_EQ(scopes.rules(), kDrop.get());
  EXPECT_EQ(scopes.outermost(), (PolicyScopes::Region{id, 1}));
  scopes.enter_module(reading(torch::ones({4})));
  EXPECT_EQ(scopes.rules(), kDrop.get()) << "it goes on";
  scopes.enter_module(reading(second));
  EXPECT_EQ(scopes.outermost(), (PolicyScopes::Region{id, 2}));
  const auto users = scopes.open(kDrop);
  scopes.enter_module(reading(other));
  EXPECT_EQ(scopes.rules(), kDrop.get());
  EXPECT_EQ(scopes.outermost().module, 2U) << "the user's scope inside decides";
  scopes.close(users);
  scopes.enter_module(reading(other));
  EXPECT_EQ(scopes.rules(), nullptr);
  scopes.close(id);
  EXPECT_FALSE(scopes.follow_modules());
}

TEST(PolicyScopes, TellParametersOfOneMemoryApart) {
  const auto buffer = torch::ones({12});
  const auto first = buffer.narrow(0, 2, 4), second = buffer.narrow(0, 6, 6);
  ModulePlaces modules;
  modules.add(second, {.region = 2, .rules = kKeep});
  modules.add(first, {.region = 1, .rules = kDrop});
  modules.add(first.view({2, 2}), {.region = 3, .rules = kKeep});  // tied: the first one counts
  const auto region = [&](const at::Tensor& tensor) {
    const ModulePlace* const place = modules.find(reading(tensor));
    return place == nullptr ? 0 : place->region;
  };
  EXPECT_EQ(region(first), 1U);
  EXPECT_EQ(region(first.slice(0, 3)), 1U);
  EXPECT_EQ(region(second), 2U);
  EXPECT_EQ(region(second.view({2, 3}).t()), 2U);
  EXPECT_EQ(region(buffer), 0U) << "begins before both";
  EXPECT_EQ(region(torch::ones({12})), 0U);
  EXPECT_EQ(modules.find({}), nullptr);
}

}  // namespace
}  // namespace remat

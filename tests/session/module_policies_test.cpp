// Policies by the paths of modules, against the same policies opened by hand.
#include <remat/module_policies.h>

#include <memory>
#include <thread>
#include <vector>

#include <remat/memory.h>

#include "session/block_net.h"
#include "support/compare.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

using Rules = ModulePolicies::Rules;

struct Passed {
  Outcome outcome;
  int64_t held = 0;  ///< bytes alive after the forward pass that were not before
  StepReport report;
};

/// One step of a model. `forward` runs it under whatever it likes.
template <class Forward>
Passed pass(Net& net, const Forward& forward) {
  torch::manual_seed(5);
  net->zero_grad();
  Passed passed;
  Session session({.budget = {}, .device = c10::kCPU});
  const auto tokens = torch::randint(32, {16, 64});
  const int64_t before = memory::current();
  auto step = session.step();
  at::Tensor loss = forward(tokens);
  passed.held = memory::current() - before;
  loss.backward();
  passed.report = step.end();
  passed.outcome.add("loss", loss);
  passed.outcome.add_module(*net);
  return passed;
}

Net make_net() {
  memory::start_accounting();  // before its parameters
  torch::manual_seed(3);
  return {};
}

Passed plain(Net& net) {
  return pass(net, [&](const at::Tensor& tokens) { return net->forward(tokens).square().mean(); });
}

Passed under(Net& net, const Rules& rules) {
  const ModulePolicies policies(net->named_parameters().pairs(), rules);
  return pass(net, [&](const at::Tensor& tokens) {
    const ModulePolicyScope scope(policies);
    return net->forward(tokens).square().mean();
  });
}

TEST(ModulePolicies, AreScopesAroundModules) {
  Net net = make_net();
  const auto forward = [&](const at::Tensor& tokens) {
    auto x = net->embedding(tokens);
    for (const auto& block : *net->blocks) {
      const PolicyScope scope(Policy::drop_all());
      x = block->as<BlockImpl>()->forward(x);
    }
    return torch::log_softmax(nn::functional::linear(x, net->embedding->weight), -1);
  };
  const auto by_hand = pass(net, [&](const at::Tensor& tokens) { return forward(tokens).square().mean(); });
  const auto kept = plain(net);
  const auto by_path = under(net, {{"blocks.*", Policy::drop_all()}});
  expect_same_bits(kept.outcome, by_path.outcome, "by path");
  expect_same_bits(kept.outcome, by_hand.outcome, "by hand");
  EXPECT_EQ(kept.report.values_dropped, 0);
  EXPECT_GT(by_path.report.values_dropped, 0);
  EXPECT_EQ(by_path.report.values_dropped, by_hand.report.values_dropped);
  EXPECT_EQ(by_path.held, by_hand.held);
  EXPECT_LT(by_path.held, kept.held);
}

TEST(ModulePolicies, TheInnermostModuleAndTheLastPatternDecide) {
  Net net = make_net();
  const auto dropped = [&](const Rules& rules) { return under(net, rules).report.values_dropped; };
  const int64_t all = dropped({{"blocks.*", Policy::drop_all()}});
  const int64_t one = dropped({{"blocks.1", Policy::drop_all()}});
  EXPECT_EQ(all, 2 * one - 1);  // what goes from one block to the next is kept
  EXPECT_EQ(dropped({{"blocks.*", Policy::drop_all()}, {"blocks.0", Policy::keep_all()}}), one);
  EXPECT_EQ(dropped({{"blocks.0", Policy::keep_all()}, {"blocks.*", Policy::drop_all()}}), all);
  EXPECT_EQ(dropped({{"blocks.*.up", Policy::keep_all()}, {"blocks.*", Policy::drop_all()}}),
            dropped({{"blocks.*", Policy::drop_all()}, {"blocks.*.up", Policy::keep_all()}}));
  EXPECT_LT(dropped({{"blocks.*", Policy::drop_all()}, {"blocks.*.up", Policy::keep_all()}}), all);
  EXPECT_EQ(dropped({{"blocks.**", Policy::drop_all()}}), all);
  EXPECT_EQ(dropped({{"bl*.1", Policy::drop_all()}}), one);
}

TEST(ModulePolicies, APolicyScopeInsideDecides) {
  Net net = make_net();
  const ModulePolicies policies(net->named_parameters().pairs(), {{"**", Policy::drop_all()}});
  const auto kept = pass(net, [&](const at::Tensor& tokens) {
    const ModulePolicyScope scope(policies);
    const PolicyScope inside(Policy::keep_all());
    return net->forward(tokens).square().mean();
  });
  EXPECT_EQ(kept.report.values_dropped, 0);
  const auto between = pass(net, [&](const at::Tensor& tokens) {
    const ModulePolicyScope scope(policies);
    at::Tensor x;
    {
      const PolicyScope inside(Policy::keep_all());
      x = net->forward(tokens);
    }
    return net->forward(tokens).square().mean() + x.mean();  // what comes after it is the modules' again
  });
  EXPECT_GT(between.report.values_dropped, 0);
}

TEST(ModulePolicies, Nest) {
  Net net = make_net();
  const auto parameters = net->named_parameters().pairs();
  const ModulePolicies outer(parameters, {{"blocks.0", Policy::drop_all()}});
  const ModulePolicies inner(parameters, {{"blocks.1", Policy::drop_all()}});
  const auto dropped = [&](bool nested, bool after) {
    return pass(net,
                [&](const at::Tensor& tokens) {
                  const ModulePolicyScope scope(outer);
                  at::Tensor x = torch::zeros({});
                  if (nested) {
                    const ModulePolicyScope other(inner);
                    x = net->forward(tokens);
                  }
                  return (after ? net->forward(tokens) + x : x).square().mean();
                })
        .report.values_dropped;
  };
  EXPECT_EQ(dropped(true, true), dropped(true, false) + dropped(false, true));
}

TEST(ModulePolicies, WorkWithoutASession) {
  const auto run = [](bool scoped) {
    Net net = make_net();
    const auto tokens = torch::arange(64).remainder(32).view({4, 16});
    std::optional<ModulePolicies> policies;
    std::optional<ModulePolicyScope> scope;
    if (scoped) scope.emplace(policies.emplace(net->named_parameters().pairs(), Rules{{"**", Policy::drop_all()}}));
    const int64_t before = memory::current();
    auto loss = net->forward(tokens).square().mean();
    scope.reset();
    const int64_t held = memory::current() - before;
    loss.backward();
    Outcome outcome;
    outcome.add_module(*net);
    return std::pair(outcome, held);
  };
  const auto [plain, all] = run(false);
  const auto [dropped, held] = run(true);
  expect_same_bits(plain, dropped, "dropped");
  EXPECT_LT(held, all / 2);
}

TEST(ModulePolicies, OfParametersThatHaveMovedHold) {
  Net net = make_net();
  const ModulePolicies policies(net->named_parameters().pairs(), {{"blocks.*", Policy::drop_all()}});
  net->to(at::kDouble);  // other storages in the same tensors
  const auto moved = pass(net, [&](const at::Tensor& tokens) {
    const ModulePolicyScope scope(policies);
    return net->forward(tokens).square().mean();
  });
  EXPECT_GT(moved.report.values_dropped, 0);
}

TEST(ModulePolicies, AStepMayEndInside) {
  Net net = make_net();
  const ModulePolicies policies(net->named_parameters().pairs(), {{"blocks.*", Policy::drop_all()}});
  Session session({.budget = {}, .device = c10::kCPU});
  {
    std::optional<Step> step(session.step());
    const ModulePolicyScope scope(policies);
    net->forward(torch::zeros({2, 4}, at::kLong)).sum().backward();
    step.reset();
    net->forward(torch::zeros({2, 4}, at::kLong)).sum().backward();
  }
  auto step = session.step();
  net->forward(torch::zeros({2, 4}, at::kLong)).sum().backward();
  EXPECT_EQ(step.end().values_dropped, 0);
}

// Reassigning a scope begins the new one before it ends the old one.
TEST(ModulePolicies, MayEndInAnyOrder) {
  Net net = make_net();
  const auto parameters = net->named_parameters().pairs();
  const ModulePolicies first(parameters, {{"blocks.0", Policy::drop_all()}});
  const ModulePolicies second(parameters, {{"blocks.*", Policy::drop_all()}});
  const auto replaced = pass(net, [&](const at::Tensor& tokens) {
    auto scope = std::make_unique<ModulePolicyScope>(first);
    const at::Tensor x = net->embedding(tokens);
    scope = std::make_unique<ModulePolicyScope>(second);
    return net->forward(tokens).square().mean() + x.mean();
  });
  EXPECT_EQ(replaced.report.values_dropped, under(net, {{"blocks.*", Policy::drop_all()}}).report.values_dropped);
  const auto cleared = pass(net, [&](const at::Tensor& tokens) {
    std::vector<std::unique_ptr<ModulePolicyScope>> scopes;
    scopes.push_back(std::make_unique<ModulePolicyScope>(second));
    scopes.push_back(std::make_unique<ModulePolicyScope>(first));
    const at::Tensor x = net->embedding(tokens);
    scopes[0].reset();
    scopes[1].reset();
    return net->forward(tokens).square().mean() + x.mean();
  });
  EXPECT_EQ(cleared.report.values_dropped, 0);
}

// It goes on on the thread that opened it until the step ends there.
TEST(ModulePolicies, OfAScopeThatAnotherThreadEndsStayKnown) {
  Net net = make_net();
  const auto left = pass(net, [&](const at::Tensor& tokens) {
    {
      const ModulePolicies policies(net->named_parameters().pairs(), {{"blocks.*", Policy::drop_all()}});
      auto scope = std::make_unique<ModulePolicyScope>(policies);
      std::thread([&] { scope.reset(); }).join();
    }
    return net->forward(tokens).square().mean();
  });
  EXPECT_GT(left.report.values_dropped, 0);
  EXPECT_EQ(plain(net).report.values_dropped, 0);
}

TEST(ModulePolicies, TellParametersInOneBufferApart) {
  Net net = make_net();
  const Rules rules = {{"blocks.1", Policy::drop_all()}};
  const int64_t apart = under(net, rules).report.values_dropped;
  int64_t elements = 0;
  for (const auto& parameter : net->parameters()) elements += parameter.numel();
  const auto buffer = torch::empty({elements});
  int64_t begin = 0;
  for (auto& parameter : net->parameters()) {
    const auto view = buffer.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
    view.copy_(parameter.detach());
    parameter.set_data(view);
  }
  EXPECT_EQ(under(net, rules).report.values_dropped, apart);
}

TEST(ModulePolicies, MatchLongPatternsSoon) {
  const std::string path(60, 'a');
  std::string pattern;
  for (int i = 0; i < 20; ++i) pattern += "**a";
  const auto weight = torch::ones({1});
  EXPECT_ERROR(ModulePolicies({{path + ".weight", weight}}, {{pattern + "b", Policy::drop_all()}}), "is at");
  EXPECT_NO_THROW(ModulePolicies({{path + ".weight", weight}}, {{pattern, Policy::drop_all()}}));
}

TEST(ModulePolicies, OfPathsThatAreNotThereAreRefused) {
  Net net = make_net();
  const auto parameters = net->named_parameters().pairs();
  const auto make = [&](const std::string& pattern) {
    return ModulePolicies(parameters, {{"blocks.*", Policy::drop_all()}, {pattern, Policy::drop_all()}});
  };
  EXPECT_ERROR(
      make("layers.*"),
      "[policies] no module with parameters is at \"layers.*\"; there are embedding, blocks.0.norm, blocks.0.up "
      "and others; use paths");
  for (const char* pattern : {"blocks.2", "block", "blocks*up", "blocks.0.", ".blocks.0", "embedding.weight"}) {
    EXPECT_ERROR(make(pattern), "no module with parameters is at");
  }
  EXPECT_ERROR(ModulePolicies({}, {{"a", Policy::drop_all()}}), "the model has none inside");
  EXPECT_NO_THROW(ModulePolicies(parameters, {}));
}

}  // namespace
}  // namespace remat::test

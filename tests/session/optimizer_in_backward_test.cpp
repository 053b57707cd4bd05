// Parameters that are updated while backward runs, against the same loop with optimizer.step() after it.
#include "support/compare.h"
#include "support/expect_error.h"

#include <functional>
#include <optional>
#include <stdexcept>

#include <remat/optimizer_in_backward.h>

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// Its first and its last product read one weight.
struct Tied : nn::Module {
  Tied() {
    first = register_module("first", nn::Linear(16, 16));
    middle = register_module("middle", nn::Sequential());
    for (int i = 0; i < 3; ++i) {
      middle->push_back(nn::Linear(16, 16));
      middle->push_back(nn::GELU());
      middle->push_back(nn::Dropout(0.1));
    }
    unused = register_module("unused", nn::Linear(16, 16));
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::linear(middle->forward(first->forward(x).tanh()), first->weight).exp();
  }
  nn::Linear first{nullptr}, unused{nullptr};
  nn::Sequential middle{nullptr};
};

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::optim::OptimizerParamGroup>)>;

template <class Optimizer, class Options>
MakeOptimizer maker(Options options) {
  return [options](const auto& groups) { return std::make_unique<Optimizer>(groups, options); };
}

/// A session's options, and whether everything is dropped that can be.
struct Scope {
  SessionOptions options;
  bool drops = false;
};

/// Four steps of a model with two groups of parameters, one of which is frozen.
Outcome training(const MakeOptimizer& make, bool in_backward, const std::optional<Scope>& scope = {},
                 int accumulate = 1) {
  torch::manual_seed(9);
  Tied model;
  model.middle->parameters()[1].set_requires_grad(false);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(model.first->parameters());
  auto others = model.middle->parameters();
  for (const auto& parameter : model.unused->parameters()) others.push_back(parameter);
  groups.emplace_back(others);
  const auto optimizer = make(groups);
  optimizer->param_groups()[1].options().set_lr(0.02);
  std::optional<OptimizerInBackward> updates;
  if (in_backward) updates.emplace(*optimizer, accumulate);
  std::optional<Session> session;
  if (scope) session.emplace(scope->options);
  Outcome outcome;
  for (int step = 0; step < 4; ++step) {
    optimizer->param_groups()[0].options().set_lr(0.1 / (step + 1));
    for (int pass = 0; pass < accumulate; ++pass) {
      std::optional<Step> recorded;
      std::optional<PolicyScope> dropping;
      if (session) recorded.emplace(session->step());
      if (scope && scope->drops) dropping.emplace(Policy::drop_all());
      const auto loss = model.forward(torch::randn({256, 16})).pow(2).mean();
      loss.backward();
      outcome.add("loss", loss);
    }
    if (in_backward) {
      for (const auto& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  for (const auto& p : model.named_parameters()) outcome.add(p.key(), p.value());
  outcome.add_generator();
  return outcome;
}

void expect_exact_updates(const MakeOptimizer& make, int accumulate = 1) {
  const Outcome plain = training(make, false, {}, accumulate);
  expect_same_bits(plain, training(make, true, {}, accumulate), "without a session");
  expect_same_bits(plain, training(make, true, Scope{.options = {.verify = true}, .drops = true}, accumulate),
                   "everything dropped");
  for (const char* planner : {"auto", "online"}) {
    const Scope scope{.options = {.budget = Budget::percent(70), .planner = planner}};
    expect_same_bits(plain, training(make, true, scope, accumulate), planner);
  }
}

TEST(OptimizerInBackward, GivesTheBitsOfSgd) {
  expect_exact_updates(maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true)));
}
TEST(OptimizerInBackward, GivesTheBitsOfAdam) {
  expect_exact_updates(maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true)));
}
TEST(OptimizerInBackward, GivesTheBitsOfAdamW) {
  expect_exact_updates(maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)));
}
TEST(OptimizerInBackward, GivesTheBitsOfRmsProp) {
  expect_exact_updates(maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01)));
}
TEST(OptimizerInBackward, GivesTheBitsOfAdagrad) {
  expect_exact_updates(maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01)));
}
TEST(OptimizerInBackward, UpdatesInTheLastOfSeveralPasses) {
  expect_exact_updates(maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)), 3);
}

TEST(OptimizerInBackward, UpdatesWhatHasItsGradientFromAnEarlierPass) {
  nn::Linear early(4, 4), late(4, 4);
  auto parameters = early->parameters();
  for (const auto& parameter : late->parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 0.1);
  const OptimizerInBackward updates(optimizer, 2);
  const auto before = early->weight.detach().clone();
  early->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_TRUE(torch::equal(early->weight, before));
  late->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_TRUE(torch::equal(early->weight, before - 0.2));
  EXPECT_FALSE(early->weight.grad().defined());
}

nn::Sequential mlp() {
  nn::Sequential model;
  for (int i = 0; i < 12; ++i) {
    model->push_back(nn::Linear(128, 128));
    model->push_back(nn::GELU());
  }
  return model;
}

/// After each of three steps: the smallest budget that the session predicts; and the last report.
std::pair<std::vector<int64_t>, StepReport> budgets_of(bool in_backward, Budget budget = {}) {
  torch::manual_seed(9);
  auto model = mlp();
  torch::optim::AdamW optimizer(model->parameters());
  std::optional<OptimizerInBackward> updates;
  if (in_backward) updates.emplace(optimizer);
  Session session({.budget = budget});
  std::vector<int64_t> smallest;
  for (int i = 0; i < 3; ++i) {
    {
      const auto step = session.step();
      model->forward(torch::randn({32, 128})).pow(2).mean().backward();
    }
    optimizer.step();
    optimizer.zero_grad();
    smallest.push_back(session.min_budget_bytes().value());
  }
  return {smallest, session.report()};
}

TEST(OptimizerInBackward, ABudgetNeedNotHoldAllGradients) {
  memory::start_accounting();
  int64_t gradients = 0;
  for (const auto& parameter : mlp()->parameters()) gradients += static_cast<int64_t>(parameter.nbytes());
  const auto [usual, usual_report] = budgets_of(false);
  const auto [ours, report] = budgets_of(true);
  EXPECT_EQ(report.end_bytes, report.baseline_bytes);
  EXPECT_LT(report.peak_bytes, usual_report.peak_bytes);
  EXPECT_LT(ours.back(), usual.back() - gradients / 2);
  EXPECT_EQ(ours.front(), ours.back()) << "the state that the first step made counts once";
  const auto [smallest, tight] = budgets_of(true, Budget::bytes(ours.back() + (1 << 16)));
  EXPECT_TRUE(tight.completed);
  EXPECT_LE(tight.peak_bytes, tight.budget_bytes);
}

TEST(OptimizerInBackward, AsksBeforeEachUpdate) {
  at::Tensor a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({a, b}, torch::optim::SGDOptions(1));
  std::vector<float> sums;
  const auto halve = [&](const at::Tensor& parameter) {
    sums.push_back(parameter.grad().sum().item<float>());
    parameter.mutable_grad().mul_(0.5);  // as an average over two processes, of which the other has none
  };
  const OptimizerInBackward updates(optimizer, /*accumulate=*/2, halve);
  (a * 3).sum().backward();  // b has a gradient in the second pass alone, and a in the first
  EXPECT_TRUE(sums.empty());
  (b * 4).sum().backward();
  EXPECT_EQ(sums, (std::vector<float>{8, 6}));
  EXPECT_EQ(a[0].item<float>(), 1 - 1.5F);
  EXPECT_EQ(b[0].item<float>(), 1 - 2.0F);
}

TEST(OptimizerInBackward, EndsWithItsObject) {
  nn::Linear layer(4, 4);
  torch::optim::SGD optimizer(layer->parameters(), 0.1);
  {
    OptimizerInBackward first(optimizer);
    EXPECT_THROW(OptimizerInBackward{optimizer}, Error) << "parameters have a hook already";
    OptimizerInBackward second(std::move(first));
    EXPECT_ERROR(first.is_between_steps(), "moved from");  // NOLINT(bugprone-use-after-move)
    EXPECT_ERROR(first.reset(), "moved from");
    EXPECT_FALSE(second.is_between_steps());
  }
  layer->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_TRUE(layer->weight.grad().defined());
  EXPECT_NO_THROW(OptimizerInBackward{optimizer});
}

struct Fails : torch::autograd::Function<Fails> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw std::runtime_error("on purpose");
  }
};

TEST(OptimizerInBackward, UpdatesNothingTwiceAfterAPassThatFailedInTheMiddle) {
  nn::Linear first(4, 4), second(4, 4);
  auto parameters = first->parameters();
  for (const auto& parameter : second->parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 0.1);
  OptimizerInBackward updates(optimizer);
  const auto x = torch::ones({2, 4});
  EXPECT_THROW(second->forward(Fails::apply(first->forward(x))).sum().backward(), std::runtime_error);
  EXPECT_TRUE(updates.is_between_steps());
  const auto before = second->weight.detach().clone();
  EXPECT_THROW(second->forward(x).sum().backward(), Error);
  EXPECT_TRUE(torch::equal(second->weight, before));
  optimizer.zero_grad();
  updates.reset();
  EXPECT_FALSE(updates.is_between_steps());
  second->forward(x).sum().backward();
  EXPECT_FALSE(torch::equal(second->weight, before));
}

TEST(OptimizerInBackward, AnUpdateThatThrowsAtTheEndOfAPassIsAFailedPass) {
  at::Tensor a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({a, b}, torch::optim::SGDOptions(1));
  bool fails = true;
  OptimizerInBackward updates(optimizer, /*accumulate=*/2, [&](const at::Tensor& parameter) {
    if (fails && parameter.is_same(a)) throw std::runtime_error("on purpose");
  });
  const auto train = [&] {
    (a * 3).sum().backward();  // in the last pass a has no gradient: it is updated as that ends
    (b * 4).sum().backward();
  };
  EXPECT_THROW(train(), std::runtime_error);
  EXPECT_EQ(b[0].item<float>(), 1 - 4.0F);
  EXPECT_TRUE(updates.is_between_steps());
  EXPECT_ERROR(train(), "after 1 parameters were updated");
  fails = false;
  optimizer.zero_grad();
  updates.reset();
  train();
  EXPECT_EQ(a[0].item<float>(), 1 - 3.0F);
  EXPECT_EQ(b[0].item<float>(), 1 - 8.0F);
}

/// Two layers in a group each, of which the first learns faster.
torch::optim::SGD sgd_of(const nn::Linear& first, const nn::Linear& second) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(first->parameters());
  groups.emplace_back(second->parameters());
  torch::optim::SGD optimizer(groups, 0.25);
  optimizer.param_groups()[0].options().set_lr(0.5);
  return optimizer;
}

TEST(OptimizerInBackward, TakesGroupsAsTheyAreAtTheTimeOfTheUpdate) {
  nn::Linear first(4, 4), second(4, 4);
  auto optimizer = sgd_of(first, second);
  const OptimizerInBackward updates(optimizer);
  auto& groups = optimizer.param_groups();
  std::swap(groups[0].params(), groups[1].params());
  const auto x = torch::ones({2, 4});
  const auto first_before = first->weight.detach().clone(), second_before = second->weight.detach().clone();
  (first->forward(x) + second->forward(x)).sum().backward();
  EXPECT_TRUE(torch::equal(first->weight, first_before - 0.5));
  EXPECT_TRUE(torch::equal(second->weight, second_before - 1));

  groups[1].params().clear();  // the first layer is trained no longer
  first->forward(x).sum().backward();
  EXPECT_TRUE(torch::equal(first->weight, first_before - 0.5));
  EXPECT_TRUE(first->weight.grad().defined());
  groups.erase(groups.begin() + 1);
  (first->forward(x) + second->forward(x)).sum().backward();
  EXPECT_TRUE(torch::equal(first->weight, first_before - 0.5));
  EXPECT_TRUE(torch::equal(second->weight, second_before - 2));

  groups[0].params().push_back(groups[0].params()[0]);
  EXPECT_THROW(second->forward(x).sum().backward(), Error) << "a parameter is in the groups twice";
  EXPECT_TRUE(torch::equal(second->weight, second_before - 2));
}

/// A checkpoint of one layer whose backward runs a backward pass.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, nn::Linear layer) {
    context->save_for_backward({x});
    layer_of_backward() = layer;
    return layer->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode enabled(true);
    layer_of_backward()->forward(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
  static nn::Linear& layer_of_backward() {
    static nn::Linear layer{nullptr};
    return layer;
  }
};

TEST(OptimizerInBackward, RefusesBackwardPassesInsideOfBackward) {
  nn::Linear inner(4, 4), outer(4, 4);
  auto optimizer = sgd_of(inner, outer);
  OptimizerInBackward updates(optimizer);
  const auto x = torch::ones({2, 4}).requires_grad_();
  const auto before = inner->weight.detach().clone();
  EXPECT_THROW(Reentrant::apply(x, inner).sum().backward(), Error);
  EXPECT_FALSE(updates.is_between_steps()) << "it was the first to complete a gradient";
  EXPECT_THROW(outer->forward(Reentrant::apply(x, inner)).sum().backward(), Error);
  EXPECT_TRUE(updates.is_between_steps()) << "the outer layer was updated";
  EXPECT_TRUE(torch::equal(inner->weight, before));
  optimizer.zero_grad();
  updates.reset();
  inner->forward(x).sum().backward();
  EXPECT_FALSE(torch::equal(inner->weight, before));
  Reentrant::layer_of_backward() = nullptr;
}

TEST(OptimizerInBackward, RefusesWhatCannotBeExact) {
  nn::Linear layer(4, 4);
  torch::optim::LBFGS all_at_once(layer->parameters());
  EXPECT_THROW(OptimizerInBackward{all_at_once}, Error);
  torch::optim::SGD optimizer(layer->parameters(), 0.1);
  EXPECT_THROW(OptimizerInBackward(optimizer, 0), Error);
  const OptimizerInBackward updates(optimizer);
  const auto loss = layer->forward(torch::ones({2, 4})).pow(2).sum();
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true), Error);
  layer->zero_grad(/*set_to_none=*/true);  // gradients with a graph are a cycle with their parameters
}

}  // namespace
}  // namespace remat::test

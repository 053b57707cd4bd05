// A network of more than a thousand layers trains within half of what its activations take.
#include "support/compare.h"
#include "zoo/resnet.h"

namespace remat::test {
namespace {

TEST(Depth, ResNetOf1202LayersIsTheSameWithinHalfOfItsActivations) {
  memory::start_accounting();
  torch::manual_seed(1);
  auto config = zoo::cifar_resnet_config(1202);
  config.width = 4;
  const auto model = zoo::make_resnet(config);
  const auto images = torch::randn({2, 3, 16, 16});
  const auto train = [&](Session& session) {
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
    auto step = session.step();
    model->forward(images).square().mean().backward();
    step.end();
    Outcome outcome;
    for (const auto& parameter : model->named_parameters()) outcome.add(parameter.key(), parameter.value().grad());
    return outcome;
  };
  StepReport free;
  Outcome expected;
  {
    Session session;
    expected = train(session);
    free = session.report();
  }
  const int64_t budget = memory::current() + free.plain_activation_peak_bytes() / 2;
  Session session({.budget = Budget::bytes(budget)});
  expect_same_bits(expected, train(session), "half");
  EXPECT_GT(session.report().operators_replayed, 1000);
  EXPECT_LE(session.report().peak_bytes, budget);
}

}  // namespace
}  // namespace remat::test

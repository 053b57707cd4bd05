// Which module the operators of a step are in.
#include "support/compare.h"

#include <remat/run.h>

#include "session/block_net.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// "addmm: block.up" and so on; only the operators that `named` lists.
std::vector<std::string> named(const Session& session, const std::vector<std::string>& layers,
                               const std::vector<std::string>& names) {
  std::vector<std::string> result;
  const Graph graph = session.graph();
  EXPECT_EQ(layers.size(), graph.operators.size());
  for (size_t o = 0; o < layers.size(); ++o) {
    const std::string& name = graph.operators[o].name;
    if (std::ranges::find(names, name) != names.end()) result.push_back(name.substr(6) + ": " + layers[o]);
  }
  return result;
}

const std::vector<std::string> kNames = {"aten::embedding", "aten::native_layer_norm", "aten::gelu", "aten::add",
                                         "aten::mm",        "aten::_log_softmax"};

TEST(OperatorLayers, AreThoseWhoseParametersAreRead) {
  memory::start_accounting();
  Net net;
  net->blocks[1]->as<BlockImpl>()->up->weight.set_requires_grad(false);  // frozen ones are parameters too
  Session session({.budget = {}, .device = c10::kCPU});
  for (int i = 0; i < 2; ++i) {
    auto step = session.step();
    net->forward(torch::arange(6).view({2, 3})).sum().backward();
    step.end();
  }
  const auto layers = session.layers(net->named_parameters().pairs());
  const std::vector<std::string> expected = {"embedding: embedding",
                                             "native_layer_norm: blocks.0.norm",
                                             "mm: blocks.0.up",
                                             "gelu: blocks.0",
                                             "mm: blocks.0.down",
                                             "add: blocks.0",
                                             "native_layer_norm: blocks.1.norm",
                                             "mm: blocks.1.up",
                                             "gelu: blocks.1",
                                             "mm: blocks.1.down",
                                             "add: blocks.1",
                                             "mm: embedding",  // the tied weight
                                             "_log_softmax: "};
  EXPECT_EQ(named(session, layers, kNames), expected);
  EXPECT_EQ((remat::Run{.name = "net", .graph = session.graph(), .plan = {}, .report = {}, .layers = layers}).problem(),
            "");
}

TEST(OperatorLayers, OfASequentialAreItsPlaces) {
  memory::start_accounting();
  nn::Sequential net(nn::Linear(4, 4), nn::GELU(), nn::Linear(4, 4));
  Session session({.budget = {}, .device = c10::kCPU});
  {
    auto step = session.step();
    torch::log_softmax(net->forward(torch::randn({2, 4}).sin()), -1).sum().backward();
  }
  const auto layers = session.layers(net->named_parameters().pairs());
  EXPECT_EQ(named(session, layers, {"aten::sin", "aten::addmm", "aten::gelu", "aten::_log_softmax"}),
            (std::vector<std::string>{"sin: ", "addmm: 0", "gelu: 0", "addmm: 2", "_log_softmax: "}));
}

TEST(OperatorLayers, OfNoParametersAreNone) {
  memory::start_accounting();
  Session session({.budget = {}, .device = c10::kCPU});
  EXPECT_THROW(session.layers({}), Error);  // no step yet
  {
    auto step = session.step();
    auto x = torch::randn({4}).requires_grad_();
    x.sin().sum().backward();
  }
  const auto strangers = nn::Linear(4, 4)->named_parameters().pairs();
  for (const auto& layer : session.layers(strangers)) EXPECT_EQ(layer, "");
  for (const auto& layer : session.layers({{"gone", at::Tensor()}})) EXPECT_EQ(layer, "");
}

/// A graph stays while later steps are not written down.
TEST(OperatorLayers, AreThoseOfTheGraph) {
  memory::start_accounting();
  nn::Linear first(4, 4), second(4, 4);
  Session session({.budget = {}, .device = c10::kCPU});
  const auto step = [&](nn::Linear& layer) {
    auto guard = session.step();
    layer(torch::randn({2, 4})).sin().sum().backward();
  };
  for (int i = 0; i < 8; ++i) step(first);
  const std::vector<std::pair<std::string, at::Tensor>> parameters = {{"a.weight", first->weight},
                                                                      {"b.weight", second->weight}};
  const auto before = named(session, session.layers(parameters), {"aten::addmm"});
  EXPECT_EQ(before, (std::vector<std::string>{"addmm: a"}));
  step(second);  // the same graph, not written down
  EXPECT_EQ(named(session, session.layers(parameters), {"aten::addmm"}), before);
}

}  // namespace
}  // namespace remat::test

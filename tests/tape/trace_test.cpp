// The graph of a step says what the step did, and nothing of how its memory lay.
#include "tape/trace.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <remat/session.h>
#include <torch/torch.h>

namespace remat {
namespace {

/// What a step holds that can be let go of in any order: three results with graphs of their own, and memory that no
/// saved value has.
struct Held {
  at::Tensor small, large, other, unsaved = torch::ones({32});
};

Graph graph_of(const std::function<void(Held&)>& let_go) {
  Session session;
  {
    const auto step = session.step();
    const at::Tensor x = torch::ones({64}, torch::requires_grad());
    Held held = {.small = x.exp().sin(), .large = x.repeat({8}).exp().sin(), .other = x.exp().sin()};
    let_go(held);
    x.sin().sum().backward();
  }
  Graph graph = session.graph();
  graph.step_seconds = 0;
  for (GraphOperator& op : graph.operators) op.seconds = op.replay_seconds = 0;
  return graph;
}

TEST(Trace, OrdersWhatIsFreedWhileNothingIsAllocatedInOneWay) {
  std::vector<at::Tensor Held::*> order = {&Held::small, &Held::large, &Held::other, &Held::unsaved};
  const auto in_order = [&](Held& held) {
    for (const auto tensor : order) held.*tensor = at::Tensor();
  };
  const std::string expected = to_json(graph_of(in_order));
  for (int i = 0; i < 4; ++i) {
    std::ranges::rotate(order, order.begin() + 1);
    EXPECT_EQ(to_json(graph_of(in_order)), expected) << "from tensor " << i + 1 << " on";
    std::ranges::reverse(order);
    EXPECT_EQ(to_json(graph_of(in_order)), expected) << "the other way";
    std::ranges::reverse(order);
  }
}

TEST(Trace, KeepsFreesBeforeAndBehindAnAllocationApart) {
  const auto with_between = [](at::Tensor Held::*first, at::Tensor Held::*second) {
    return graph_of([=](Held& held) {
      held.*first = at::Tensor();
      const at::Tensor between = torch::empty({4096});
      held.*second = at::Tensor();
    });
  };
  const Graph small_first = with_between(&Held::small, &Held::large);
  const Graph large_first = with_between(&Held::large, &Held::small);
  EXPECT_GT(small_first.plain_peak_bytes(), large_first.plain_peak_bytes());
}

}  // namespace
}  // namespace remat

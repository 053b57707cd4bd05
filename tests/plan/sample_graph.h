// tests/plan/sample_graph.h -- a small sound graph with one of everything, and large ones made by rule.
#pragma once

#include <cstdint>
#include <string>

#include <remat/graph.h>

namespace remat {

/// weight 0, input 1; 2 = addmm(0, 1); 3 = relu(2); 4 = mul_(3, 1), in place.
inline Graph sample_graph() {
  using Kind = GraphEvent::Kind;
  Graph graph;
  graph.baseline_bytes = 464;
  graph.parameter_bytes = 400;
  graph.gradient_bytes = 8;
  graph.step_seconds = 0.5;
  graph.values = {{400, -1, 0, false}, {64, -1, 0, false}, {64, 0, 0, true}, {64, 1, 8, false}, {64, 2, 8, true}};
  graph.operators = {{"aten::addmm", 0.25, 0.125, 16, {0, 1}, {}, {2}},
                     {"aten::relu", 0.1, 0.1, 0, {2}, {}, {3}},
                     {"aten::mul_", 1e-7, 2e-7, 0, {3, 1}, {3}, {4}}};
  graph.events = {{Kind::kOperator, 0, 80, 64}, {Kind::kIdle, 2, 0, 0},     {Kind::kOperator, 1, 64, 64},
                  {Kind::kIdle, 3, 0, 0},       {Kind::kOperator, 2, 0, 0}, {Kind::kOther, -1, 128, 0},
                  {Kind::kIdle, 4, 0, 0},       {Kind::kUse, 4, 64, 64},    {Kind::kFree, 4, 0, 0},
                  {Kind::kUse, 3, 0, 0},        {Kind::kUse, 2, 0, 0},      {Kind::kUse, 2, 0, 0},
                  {Kind::kFree, 2, 0, 0},       {Kind::kFree, 3, 0, 0}};
  return graph;
}

/// A chain of `length` operators, each with one result that is idle at once and is used and freed in backward.
inline Graph chain_graph(int32_t length) {
  using Kind = GraphEvent::Kind;
  Graph graph;
  graph.values.push_back({1 << 20, -1, 0, false});
  for (int32_t o = 0; o < length; ++o) {
    const int64_t bytes = 4096 + int64_t{64} * (o % 100);
    const double seconds = 1e-5 / (1 + o % 7);
    graph.values.push_back({bytes, o, o % 3 == 0 ? bytes / 32 : 0, true});
    graph.operators.push_back(
        {"aten::op" + std::to_string(o % 40), seconds, seconds / 3, int64_t{64} * (o % 5), {o}, {}, {o + 1}});
    graph.events.push_back({Kind::kOperator, o, bytes, bytes});
    graph.events.push_back({Kind::kIdle, o + 1, 0, 0});
    graph.step_seconds += 3 * seconds;
  }
  for (int32_t v = length; v > 0; --v) {
    graph.events.push_back({Kind::kUse, v, 128, 0});
    graph.events.push_back({Kind::kFree, v, 0, 0});
  }
  return graph;
}

}  // namespace remat

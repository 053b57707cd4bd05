// tests/plan/step_builder.h -- graphs told operator by operator.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <remat/graph.h>

namespace remat::test {

/// A forward pass of operators with one result each; backward asks for the droppable ones in reverse order and frees
/// them. Value 0 is a leaf. What is not droppable is not saved, and its bytes are left out of plain's memory.
class StepBuilder {
 public:
  StepBuilder() { graph_.values.push_back({.bytes = 1}); }

  /// Returns the result.
  int32_t saved(std::vector<int32_t> inputs, int64_t bytes, double seconds = 1, int64_t packed_bytes = 0) {
    return add(std::move(inputs), {bytes, 0, packed_bytes, true}, seconds);
  }
  int32_t lost(std::vector<int32_t> inputs, double seconds = 1) {
    return add(std::move(inputs), {.bytes = 1}, seconds);
  }
  /// Names the last operator.
  StepBuilder& named(const std::string& name) {
    graph_.operators.back().name = name;
    return *this;
  }
  /// The last operator writes its result over its first input.
  StepBuilder& in_place() {
    graph_.operators.back().overwritten = {graph_.operators.back().inputs[0]};
    return *this;
  }

  Graph graph() const {
    Graph graph = graph_;
    for (auto v = static_cast<int32_t>(graph.values.size()); v-- > 0;) {
      if (!graph.values[static_cast<size_t>(v)].droppable) continue;
      graph.events.push_back({GraphEvent::Kind::kUse, v, 0, 0});
      graph.events.push_back({GraphEvent::Kind::kFree, v, 0, 0});
    }
    return graph;
  }

 private:
  int32_t add(std::vector<int32_t> inputs, GraphValue value, double seconds) {
    const auto o = static_cast<int32_t>(graph_.operators.size());
    const auto v = static_cast<int32_t>(graph_.values.size());
    value.producer = o;
    const int64_t kept = value.droppable ? value.bytes : 0;
    graph_.values.push_back(value);
    graph_.operators.push_back({"aten::op", seconds, seconds, 0, std::move(inputs), {}, {v}});
    graph_.events.push_back({GraphEvent::Kind::kOperator, o, kept, kept});
    if (value.droppable) graph_.events.push_back({GraphEvent::Kind::kIdle, v, 0, 0});
    graph_.step_seconds += 3 * seconds;
    return v;
  }

  Graph graph_;
};

/// Saved values in a row.
inline Graph plain_chain(const std::vector<std::pair<int64_t, double>>& bytes_and_seconds) {
  StepBuilder step;
  int32_t last = 0;
  for (const auto& [bytes, seconds] : bytes_and_seconds) last = step.saved({last}, bytes, seconds);
  return step.graph();
}

}  // namespace remat::test

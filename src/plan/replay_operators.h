// src/plan/replay_operators.h -- the parts of a graph's operators that replays need, contiguous in memory. A search
// reads them hundreds of millions of times, and the lists and the name of a GraphOperator are scattered over the heap.
// Leaves are left out, because no replay recomputes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <remat/graph.h>

namespace remat {

class ReplayOperators {
 public:
  explicit ReplayOperators(const Graph& graph) {
    operators_.reserve(graph.operators.size());
    for (const GraphOperator& op : graph.operators) {
      Operator& own = operators_.emplace_back();
      own.seconds = op.replay_seconds;
      own.scratch_bytes = op.scratch_bytes;
      own.inputs = add(graph, op.inputs);
      own.overwritten = add(graph, op.overwritten);
      own.results = add(graph, op.results);
      own.end = static_cast<uint32_t>(values_.size());
    }
  }

  double seconds(int32_t index) const { return operators_[index].seconds; }
  int64_t scratch_bytes(int32_t index) const { return operators_[index].scratch_bytes; }
  std::span<const int32_t> inputs(int32_t index) const {
    return between(operators_[index].inputs, operators_[index].overwritten);
  }
  std::span<const int32_t> overwritten(int32_t index) const {
    return between(operators_[index].overwritten, operators_[index].results);
  }
  std::span<const int32_t> results(int32_t index) const {
    return between(operators_[index].results, operators_[index].end);
  }

 private:
  /// Each list ends where the next begins.
  struct Operator {
    double seconds = 0;
    int64_t scratch_bytes = 0;
    uint32_t inputs = 0, overwritten = 0, results = 0, end = 0;
  };

  uint32_t add(const Graph& graph, const std::vector<int32_t>& list) {
    const auto begin = static_cast<uint32_t>(values_.size());
    for (const int32_t v : list) {
      if (graph.values[v].producer >= 0) values_.push_back(v);
    }
    return begin;
  }
  std::span<const int32_t> between(uint32_t begin, uint32_t end) const {
    return std::span(values_).subspan(begin, end - begin);
  }

  std::vector<Operator> operators_;
  std::vector<int32_t> values_;
};

}  // namespace remat

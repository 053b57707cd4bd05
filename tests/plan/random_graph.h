// tests/plan/random_graph.h -- small graphs as a step would leave them: chains with skips, in-place operators, values
// used twice; with_policies() values that a policy drops or that only replays read, and backward twice over some
// graphs.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include <remat/graph.h>

namespace remat::test {

/// The same for the same seed on every machine.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {}

  RandomGraph& with_policies(bool with = true) {
    policies_ = with;
    return *this;
  }

  Graph make(int operators) {
    graph_.baseline_bytes = 1000 + below(1000);
    graph_.step_seconds = 1;
    for (int leaf = 0; leaf < 2; ++leaf) graph_.values.push_back({.bytes = 100 + below(100)});
    event(GraphEvent::Kind::kOther, -1, below(50), 0);
    retained_ = policies_ && chance(30);
    for (int o = 0; o < operators; ++o) forward(o);
    for (int o = operators; retained_ && o-- > 0;) backward(o, /*again=*/true);
    for (int o = operators; o-- > 0;) backward(o, /*again=*/false);
    return graph_;
  }

 private:
  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(bound)); }
  bool chance(int percent) { return below(100) < percent; }

  void event(GraphEvent::Kind kind, int32_t index, int64_t scratch, int64_t delta) {
    const int64_t reused = kind == GraphEvent::Kind::kUse ? scratch / 3 : 0;
    graph_.events.push_back({kind, index, std::max<int64_t>(0, delta) + scratch, delta, reused});
  }

  void forward(int o) {
    const auto known = static_cast<int64_t>(graph_.values.size());
    GraphOperator op;
    op.name = "aten::op" + std::to_string(o);
    op.seconds = op.replay_seconds = 0.001 * static_cast<double>(1 + below(20));
    op.scratch_bytes = chance(30) ? below(200) : 0;
    const auto add = [&](int64_t input) {
      const auto id = static_cast<int32_t>(input);
      if (std::find(op.inputs.begin(), op.inputs.end(), id) == op.inputs.end()) op.inputs.push_back(id);
    };
    add(known - 1);
    if (chance(40)) add(std::max<int64_t>(0, known - 1 - below(6)));
    if (chance(20)) add(below(2));
    int64_t made = 0;
    for (int64_t results = chance(15) ? 2 : 1; results > 0; --results) {
      GraphValue value{.bytes = 50 + below(1000), .producer = o};
      value.droppable = chance(70);
      if (value.droppable && chance(25)) value.packed_bytes = 1 + value.bytes / 8;
      value.dropped = policies_ && !value.droppable && chance(40);
      only_for_replays_.resize(graph_.values.size(), false);
      only_for_replays_.push_back(policies_ && value.droppable && chance(20));
      if (only_for_replays_.back()) value.packed_bytes = 0;
      op.results.push_back(static_cast<int32_t>(graph_.values.size()));
      made += value.bytes;
      graph_.values.push_back(value);
    }
    // An in-place operator: what was in the storage before is not saved.
    const int32_t overwritten = op.inputs[0];
    const bool old_is_saved = graph_.values[static_cast<size_t>(overwritten)].returns();
    if (op.results.size() == 1 && overwritten >= 2 && !old_is_saved && chance(50)) {
      GraphValue& value = graph_.values.back();
      made += graph_.values[static_cast<size_t>(overwritten)].bytes - value.bytes;
      value.bytes = graph_.values[static_cast<size_t>(overwritten)].bytes;
      value.packed_bytes = std::min(value.packed_bytes, value.bytes);
      op.overwritten.push_back(overwritten);
      made -= value.bytes;
    }
    const int64_t scratch = op.scratch_bytes;
    const std::vector<int32_t> results = op.results;
    graph_.operators.push_back(std::move(op));
    event(GraphEvent::Kind::kOperator, o, scratch, made);
    for (const int32_t v : results) {
      const bool in_hands = retained_ && is_saved(v) && chance(20);  // until backward has been through once
      if (graph_.values[static_cast<size_t>(v)].returns() && !in_hands) event(GraphEvent::Kind::kIdle, v, 0, 0);
    }
  }

  void backward(int o, bool again) {
    const GraphOperator& op = graph_.operators[static_cast<size_t>(o)];
    for (const int32_t v : op.inputs) {
      if (is_saved(v) && chance(60)) event(GraphEvent::Kind::kUse, v, below(300), 0);
    }
    for (const int32_t v : op.results) {
      if (!graph_.values[static_cast<size_t>(v)].returns()) continue;
      if (is_saved(v)) event(GraphEvent::Kind::kUse, v, below(300), 0);
      if (!again) event(GraphEvent::Kind::kFree, v, below(50), 0);
      if (again && is_saved(v)) event(GraphEvent::Kind::kIdle, v, below(50), 0);
    }
  }

  bool is_saved(int32_t v) const {
    return graph_.values[static_cast<size_t>(v)].returns() && !only_for_replays_[static_cast<size_t>(v)];
  }

  std::mt19937 random_;
  bool policies_ = false, retained_ = false;
  std::vector<bool> only_for_replays_;  ///< by value
  Graph graph_;
};

}  // namespace remat::test

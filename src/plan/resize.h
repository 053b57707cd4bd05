// src/plan/resize.h -- predicts the graph of a step in progress that runs the operators of known steps with other
// sizes.
//
// Bytes are linear in products of a few lengths (batch, tokens, tokens squared, tokens of an expert), which the graph
// does not name. Weights of the known graphs with which their bytes add up to those of the values made so far predict
// the other bytes too. The prediction is exact where there are as many known graphs as products; docs/algorithms.md.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// The fingerprint of `graph` without its bytes: equal for steps that ran the same operators, with the same events of
/// values.
uint64_t structure_of(const Graph& graph);

struct Resized {
  Graph graph;
  /// The weighted graphs give the bytes of all values made so far, and there are enough graphs to tell how bytes grow.
  bool exact = false;
};

/// `known`: at least one graph, all of one structure and all different. `seen`: by value, the bytes of those that the
/// step has made so far; -1 for the others. The result has the baseline of the first graph.
Resized resize(const std::vector<const Graph*>& known, const std::vector<int64_t>& seen);

}  // namespace remat

// src/plan/resize.h -- the graph of a step that runs the operators of known ones with other sizes, foretold while it
// runs: from what its first operators made.
//
// Bytes are sums of products of a few lengths (batch, tokens, tokens squared, or how many of them an expert got), which
// nobody names. But known steps of other lengths can be weighted so that their figures add up to those seen so far: the
// same weights then tell the rest. Exact where there are as many known steps as products; docs/algorithms.md.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>

namespace remat {

/// Tells graphs apart as Graph::fingerprint() does, but for bytes: equal where the same operators ran, and saved values
/// had the same lives.
uint64_t structure_of(const Graph& graph);

struct Resized {
  Graph graph;
  /// The weighted steps come to what was seen, and there are enough of them to tell how bytes grow.
  bool exact = false;
};

/// `known`: graphs of one structure, at least one, all different. `seen`: bytes by value, those of values that the step
/// has made so far; -1 for the others. The baseline is that of the first.
Resized resize(const std::vector<const Graph*>& known, const std::vector<int64_t>& seen);

}  // namespace remat

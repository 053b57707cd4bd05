// src/session/graph_match.h -- compares the operators that a step has run so far with the first ones of a graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include <remat/graph.h>

#include "tape/program.h"

namespace remat {

class Tape;

/// True if the step's operators so far, or the first `most` of them, are the first ones of `graph`, with results of the
/// same sizes.
bool begins_like(const Tape& tape, const Graph& graph, OperationId most = kNoId);

/// How the results of the step's operators so far, or of the first `most` of them, compare with those of the first
/// operators of a graph: kOther if the graph has other operators, kLarger if some results are larger.
enum class Sizes : uint8_t { kOther, kNotLarger, kLarger };
Sizes compare_sizes(const Tape& tape, const Graph& graph, OperationId most = kNoId);

/// True if the step's operators so far are the first ones of `graph`, whatever the sizes are.
inline bool runs_operators_of(const Tape& tape, const Graph& graph) {
  return compare_sizes(tape, graph) != Sizes::kOther;
}

}  // namespace remat

// src/session/graph_match.h -- compares the operators that a step has run so far with the first ones of a graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include <remat/graph.h>

#include "tape/program.h"

namespace remat {

class Tape;

/// Are the operators so far, at most so many, the first ones of `graph`, with results of the same sizes?
bool begins_like(const Tape& tape, const Graph& graph, OperationId most = kNoId);

/// The sizes of the results so far, of at most so many operators, beside those of the first operators of `graph`:
/// kOther if these are other operators, kLarger if some results are larger.
enum class Sizes : uint8_t { kOther, kNotLarger, kLarger };
Sizes compare_sizes(const Tape& tape, const Graph& graph, OperationId most = kNoId);

/// Are the operators so far the first ones of `graph`, of whatever sizes?
inline bool runs_operators_of(const Tape& tape, const Graph& graph) {
  return compare_sizes(tape, graph) != Sizes::kOther;
}

}  // namespace remat

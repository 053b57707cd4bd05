#include "session/graph_match.h"

#include <algorithm>

#include "tape/tape.h"

namespace remat {
namespace {

/// How many operations.
OperationId compared(const Tape& tape, OperationId most) {
  return std::min(most, static_cast<OperationId>(tape.program.size()));
}

/// Is the operation the one that `graph` has in its place?
bool is_same_operator(const Tape& tape, OperationId index, const Graph& graph) {
  if (index >= graph.operators.size()) return false;
  const Operation& operation = tape.program[index];
  const GraphOperator& planned = graph.operators[index];
  if (planned.results.size() != operation.value_count) return false;
  if (!planned.results.empty() && planned.results.front() != static_cast<int32_t>(operation.first_value)) return false;
  return operation.info == nullptr || operation.info->base_view() == planned.name;  // null: forgotten since
}

/// Calls visit(bytes, planned bytes) for each result of an operation that is the one that `graph` has in its place.
template <class Visit>
void for_each_result(const Tape& tape, OperationId index, const Graph& graph, Visit visit) {
  for (const int32_t made : graph.operators[index].results) {
    const Value& value = tape.values[static_cast<ValueId>(made)];
    if (value.producer == index) visit(value.counted_bytes(), graph.values[static_cast<size_t>(made)].bytes);
  }
}

}  // namespace

bool begins_like(const Tape& tape, const Graph& graph, OperationId most) {
  bool same = true;
  for (OperationId index = 0; index < compared(tape, most) && same; ++index) {
    same = is_same_operator(tape, index, graph);
    if (same)
      for_each_result(tape, index, graph, [&](int64_t bytes, int64_t planned) { same = same && bytes == planned; });
  }
  return same;
}

Sizes compare_sizes(const Tape& tape, const Graph& graph, OperationId most) {
  bool larger = false;
  for (OperationId index = 0; index < compared(tape, most); ++index) {
    if (!is_same_operator(tape, index, graph)) return Sizes::kOther;
    for_each_result(tape, index, graph, [&](int64_t bytes, int64_t planned) { larger = larger || bytes > planned; });
  }
  return larger ? Sizes::kLarger : Sizes::kNotLarger;
}

}  // namespace remat

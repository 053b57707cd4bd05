#include <remat/plan.h>

#include "plan/json.h"

namespace remat {

std::string Plan::problem(const Graph& graph) const {
  if (const uint64_t actual = graph.fingerprint(); graph_fingerprint != actual)
    return "the plan is for the graph with fingerprint " + hexadecimal(graph_fingerprint) + ", this graph has " +
           hexadecimal(actual);
  if (actions.size() != graph.values.size())
    return "the plan has " + std::to_string(actions.size()) + " actions, the graph has " +
           std::to_string(graph.values.size()) + " values";
  for (size_t v = 0; v < actions.size(); ++v) {
    const auto wrong = [v](const std::string& why) { return "value " + std::to_string(v) + " " + why; };
    const GraphValue& value = graph.values[v];
    const Action action = actions[v];
    if (action.kind > Action::Kind::kRecompute)
      return wrong("has the unknown action " + std::to_string(static_cast<int>(action.kind)));
    if (action.kind == Action::Kind::kRecompute && !value.returns())
      return wrong("is to be recomputed, but the graph says that it is not droppable");
    if (action == Action::kPack && value.packed_bytes <= 0)
      return wrong("is to be packed, but the graph gives it packed_bytes " + std::to_string(value.packed_bytes));
    if (action == Action::kMove && !graph.tier) return wrong("is to be moved, but the graph has no tier to move it to");
    if (action == Action::kMove && !value.droppable)
      return wrong("is to be moved, but the graph says that it is not droppable");
    if (action.form > Form::kMoved || (action.kind != Action::Kind::kHold && action.form != Form::kPacked))
      return wrong("has the form " + std::to_string(static_cast<int>(action.form)) +
                   "; of values to be held that is 0 or 1, of others 0");
    if ((action.kind == Action::Kind::kRecompute) != (action.held_from > 0))
      return wrong("is held from its recompute " + std::to_string(action.held_from) +
                   " on; of values to be recomputed that is 1 or more, of others 0");
  }
  return {};
}

}  // namespace remat

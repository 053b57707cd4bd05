// The planners `keep-all` and `drop-all`: the two ends of the trade-off.
#include "plan/planners.h"

namespace remat::planners {

Actions keep_all(const Graph& graph, int64_t /*budget_bytes*/, PlannerOptions /*options*/) {
  return Actions(graph.values.size(), Action::kKeep);  // NOLINT(modernize-return-braced-init-list): two elements
}

Actions drop_all(const Graph& graph, int64_t /*budget_bytes*/, PlannerOptions /*options*/) {
  Actions actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v) {
    if (graph.values[v].droppable) actions[v] = Action::kRecompute;
  }
  return actions;
}

}  // namespace remat::planners

// The two ends of the trade-off.
#include "plan/planners.h"

namespace remat::planners {

Fates keep_all(const Graph& graph, int64_t /*budget_bytes*/, PlannerOptions /*options*/) {
  Fates fates(graph.values.size(), Fate::kKeep);
  return fates;
}

Fates drop_all(const Graph& graph, int64_t /*budget_bytes*/, PlannerOptions /*options*/) {
  Fates fates(graph.values.size(), Fate::kKeep);
  for (size_t v = 0; v < fates.size(); ++v) {
    if (graph.values[v].droppable) fates[v] = Fate::kDrop;
  }
  return fates;
}

}  // namespace remat::planners

#include "plan/warm_starts.h"

#include "plan/simulate.h"

namespace remat::planners {

void offer_warm_starts(ParetoFront& front, const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Simulator simulator(graph);
  for (const auto& planner :
       {drop_all, segments, articulation_memory, articulation_speed, selective, rotor, revolve, online}) {
    const Actions actions = planner(graph, budget_bytes, options);
    front.offer(simulator.run(actions), actions);
  }
}

}  // namespace remat::planners

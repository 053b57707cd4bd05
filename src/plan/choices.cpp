#include "plan/choices.h"

#include "plan/simulate.h"

namespace remat::planners {

void offer_choices(ParetoFront& front, const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Simulator simulator(graph);
  for (const auto& choose :
       {drop_all, segments, articulation_memory, articulation_speed, selective, rotor, revolve, online}) {
    const Actions actions = choose(graph, budget_bytes, options);
    front.offer(simulator.run(actions), actions);
  }
}

}  // namespace remat::planners

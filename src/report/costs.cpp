#include "report/costs.h"

namespace remat {

Fate fate_of(const GraphValue& value, const Action& action) {
  if (value.dropped || action.kind == Action::Kind::kRecompute) return Fate::kRecomputed;
  if (action.kind != Action::Kind::kHold) return Fate::kKept;
  return action.form == Form::kPacked ? Fate::kPacked : Fate::kMoved;
}

PlanCosts plan_costs(const Graph& graph, const Timeline& timeline) {
  PlanCosts costs;
  costs.of_value.resize(graph.values.size());
  costs.of_operator.resize(graph.operators.size());
  for (size_t m = 0; m < timeline.moments.size(); ++m) {
    const TimelineMoment& moment = timeline.moments[m];
    if (moment.value < 0) continue;
    const bool last = m + 1 == timeline.moments.size();
    const double end = last ? timeline.end_seconds : timeline.moments[m + 1].begin_seconds;
    const bool replay = moment.work == TimelineMoment::Work::kRecompute;
    const auto add = [&](PlanCosts::Cost& cost) {
      cost.replays += replay ? 1 : 0;
      cost.seconds += timeline.timed ? end - moment.begin_seconds : 0;
    };
    add(costs.of_value[moment.value]);
    if (replay) add(costs.of_operator[moment.index]);
    add(costs.all);
  }
  return costs;
}

}  // namespace remat

#include "plan/candidates.h"

#include <algorithm>
#include <limits>

#include "plan/form_costs.h"

namespace remat::planners {

std::vector<bool> saved_values(const Graph& graph) {
  std::vector<bool> saved(graph.values.size(), false);
  for (const GraphEvent& event : graph.events) {
    if (event.kind == GraphEvent::Kind::kIdle || event.kind == GraphEvent::Kind::kFree) saved[event.index] = true;
  }
  for (size_t v = 0; v < saved.size(); ++v) saved[v] = saved[v] && !graph.values[v].dropped;
  return saved;
}

std::vector<double> recompute_seconds(const Graph& graph) {
  double all = 0;
  for (const GraphOperator& op : graph.operators) all += op.replay_seconds;
  const std::vector<bool> saved = saved_values(graph);
  std::vector<double> seconds(graph.values.size(), 0);
  for (const GraphOperator& op : graph.operators) {
    double sum = op.replay_seconds;
    for (const int32_t input : op.inputs) {
      if (graph.values[input].producer >= 0 && !saved[input]) sum += seconds[input];
    }
    for (const int32_t made : op.results) seconds[made] = std::min(sum, all);
  }
  return seconds;
}

std::vector<bool> cheaper_packed(const Graph& graph) {
  const std::vector<double> recompute = recompute_seconds(graph);
  std::vector<bool> cheaper(graph.values.size(), false);
  for (size_t v = 0; v < cheaper.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (!value.droppable || value.packed_bytes == 0 || value.packed_bytes >= value.bytes) continue;
    cheaper[v] = packing_seconds(value.bytes) < recompute[v];
  }
  return cheaper;
}

Actions only_kept(const Graph& graph, const std::vector<bool>& kept) {
  Actions actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v) {
    if (graph.values[v].droppable && !kept[v]) actions[v] = Action::kRecompute;
  }
  return actions;
}

Candidates::Candidates(const Graph& graph, int64_t budget, PlannerOptions options)
    : graph_(graph),
      budget_(budget),
      simulator_(graph),
      packable_(options.pack ? cheaper_packed(graph) : std::vector<bool>()) {
  plain_peak_ = judge(Actions(graph.values.size(), Action::kKeep));
}

int64_t Candidates::judge(const Actions& actions) {
  const Simulation run = simulator_.run(actions);
  work_ += work_of(graph_, run);
  front_.offer(run, actions);
  return run.peak_bytes;
}

Actions Candidates::packed(Actions actions, bool kept_too) const {
  for (size_t v = 0; v < packable_.size(); ++v) {
    if (packable_[v] && (kept_too || actions[v] != Action::kKeep)) actions[v] = Action::kPack;
  }
  return actions;
}

bool Candidates::offer(const Actions& actions) {
  int64_t lowest = judge(actions);
  const Actions of_dropped = packed(actions, false), of_all = packed(actions, true);
  if (of_dropped != actions) lowest = std::min(lowest, judge(of_dropped));
  if (of_all != of_dropped) lowest = std::min(lowest, judge(of_all));
  return lowest <= budget_;
}

double Candidates::best_seconds() const {
  const ParetoFront::Point* const found = front_.within(budget_);
  return found != nullptr ? found->seconds : std::numeric_limits<double>::infinity();
}

Actions Candidates::best() const {
  const ParetoFront::Point* const found = front_.within(budget_);
  return found != nullptr ? found->actions : front_.lowest().actions;
}

}  // namespace remat::planners

#include <remat/checkpoints.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <remat/error.h>

#include "plan/chain.h"
#include "plan/simulate.h"

namespace remat {
namespace {

using planners::Chain;
using planners::ChainSchedule;
using planners::Cuts;

constexpr double kTimesRoot = 4;

void check(const Graph& graph) {
  if (const std::string wrong = graph.problem(); !wrong.empty())
    throw Error("[checkpoints] the graph is not sound: " + wrong + "; record it again");
}

struct Placed {
  Checkpoints checkpoints;
  int64_t peak_bytes = std::numeric_limits<int64_t>::max();
};

Checkpoints between(const Graph& graph, std::vector<int32_t> cuts) {
  const Chain chain(graph, std::move(cuts));
  ChainSchedule schedule(chain.blocks());
  std::fill(schedule.state.begin(), schedule.state.end(), 0);
  std::fill(schedule.inside.begin(), schedule.inside.end(), 1);
  if (!schedule.inside.empty()) schedule.inside.back() = 0;
  Checkpoints result{chain.cuts, actions_of(graph, chain, schedule)};
  // The ends of the forward pass are no checkpoints.
  if (!result.places.empty()) result.places.pop_back();
  if (!result.places.empty()) result.places.erase(result.places.begin());
  return result;
}

Placed place(const Graph& graph, const Cuts& cuts, Simulator& simulator, int64_t count) {
  Placed best;
  for (const auto measure : {Cuts::Measure::kBytes, Cuts::Measure::kSeconds}) {
    Checkpoints checkpoints = between(graph, cuts.divide(std::max<int64_t>(count, 0) + 1, measure));
    const int64_t peak = simulator.run(checkpoints.actions).peak_bytes;
    if (peak < best.peak_bytes) best = {std::move(checkpoints), peak};
  }
  return best;
}

}  // namespace

int64_t most_checkpoints(const Graph& graph) {
  check(graph);
  const auto operators = static_cast<int64_t>(graph.operators.size());
  const auto cuts = Cuts(graph).divide(operators + 1, Cuts::Measure::kBytes);
  return std::max<int64_t>(0, static_cast<int64_t>(cuts.size()) - 2);
}

Checkpoints place_checkpoints(const Graph& graph, int64_t count) {
  check(graph);
  Simulator simulator(graph);
  return place(graph, Cuts(graph), simulator, count).checkpoints;
}

Checkpoints best_checkpoints(const Graph& graph) {
  check(graph);
  const Cuts cuts(graph);
  Simulator simulator(graph);
  const auto enough = static_cast<int64_t>(kTimesRoot * std::sqrt(static_cast<double>(graph.operators.size())));
  const int64_t most = std::min(most_checkpoints(graph), enough);
  Placed best = place(graph, cuts, simulator, std::min<int64_t>(1, most));
  for (int64_t count = 2; count <= most; ++count) {
    Placed next = place(graph, cuts, simulator, count);
    if (next.peak_bytes < best.peak_bytes) best = std::move(next);
  }
  return std::move(best.checkpoints);
}

std::vector<Action> recompute_all(const Graph& graph) {
  check(graph);
  std::vector<Action> actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v) {
    if (graph.values[v].droppable) actions[v] = Action::kRecomputeEachTime;
  }
  return actions;
}

}  // namespace remat

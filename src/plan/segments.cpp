// The planner `segments`, after Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
#include <algorithm>
#include <cmath>

#include "plan/candidates.h"
#include "plan/chain.h"
#include "plan/planners.h"

namespace remat::planners {
namespace {

/// Numbers of segments that are tried: each a 32nd more than the last, up to some times the root.
constexpr int64_t kMoreSegments = 32;
constexpr double kTimesRoot = 8;

/// Keeps as many segments at the end as fit: backward begins with them, and gains nothing by dropping them.
void offer_segments(Candidates& candidates, const Graph& graph, const Chain& chain) {
  int32_t low = 0, high = chain.blocks();
  while (low <= high && !candidates.exhausted()) {
    const int32_t kept = low + (high - low) / 2;
    ChainSchedule schedule(chain.blocks());
    std::fill(schedule.state.begin(), schedule.state.end(), 0);
    std::fill(schedule.inside.begin(), schedule.inside.end(), 1);
    std::fill(schedule.inside.end() - kept, schedule.inside.end(), 0);
    if (candidates.offer(actions_of(graph, chain, schedule))) {
      low = kept + 1;
    } else {
      high = kept - 1;
    }
  }
}

}  // namespace

Actions segments(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  const Cuts cuts(graph);
  const auto most = static_cast<int64_t>(kTimesRoot * std::sqrt(static_cast<double>(graph.operators.size())));
  for (int64_t k = 1; k <= most && !candidates.exhausted(); k += std::max<int64_t>(1, k / kMoreSegments)) {
    for (const auto measure : {Cuts::Measure::kBytes, Cuts::Measure::kSeconds}) {
      offer_segments(candidates, graph, Chain(graph, cuts.divide(k, measure)));
    }
  }
  return candidates.best();
}

}  // namespace remat::planners

// The planner `segments`, after Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
#include <algorithm>
#include <cmath>

#include "plan/candidates.h"
#include "plan/chain.h"
#include "plan/planners.h"
#include "plan/starts.h"

namespace remat::planners {
namespace {

/// Up to here every number of segments is tried. Beyond, each a quarter more than the last, up to some times the root.
constexpr size_t kFewOperators = 512;
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

void offer_segments(Candidates& candidates, const Graph& graph, Tries tries) {
  const Cuts cuts(graph);
  const size_t operators = graph.operators.size();
  const bool few = operators <= kFewOperators && tries == Tries::kAll;
  const auto most = static_cast<int64_t>(few ? static_cast<double>(operators)
                                             : kTimesRoot * std::sqrt(static_cast<double>(operators)));
  for (int64_t k = 1; k <= most && !candidates.exhausted(); k = few ? k + 1 : std::max(k + 1, k + k / 4)) {
    for (const auto measure : {Cuts::Measure::kBytes, Cuts::Measure::kSeconds}) {
      offer_segments(candidates, graph, Chain(graph, cuts.divide(k, measure)));
    }
  }
}

Actions segments(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Candidates candidates(graph, budget_bytes, options);
  offer_segments(candidates, graph, Tries::kAll);
  return candidates.best();
}

}  // namespace remat::planners

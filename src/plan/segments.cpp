// The planner `segments`, after Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/candidates.h"
#include "plan/chain.h"
#include "plan/planners.h"

namespace remat::planners {
namespace {

/// First, numbers of segments are tried of which each is larger than the last by a 32nd, up to the number of operators,
/// or kTimesRoot times its square root in large graphs. Then all numbers next to the best of these.
constexpr int64_t kMore = 32;
constexpr size_t kManyOperators = 512;
constexpr double kTimesRoot = 8;

/// Keeps as many segments at the end as fit: backward begins with them, so dropping them frees nothing at the peak.
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
  const auto offer = [&](int64_t count) {
    for (const auto measure : {Cuts::Measure::kBytes, Cuts::Measure::kSeconds}) {
      offer_segments(candidates, graph, Chain(graph, cuts.divide(count, measure)));
    }
  };
  const auto next = [](int64_t count) { return count + std::max<int64_t>(1, count / kMore); };
  const auto operators = static_cast<double>(graph.operators.size());
  const bool many = graph.operators.size() > kManyOperators;
  const auto most = static_cast<int64_t>(many ? kTimesRoot * std::sqrt(operators) : operators);
  int64_t best = 0, before_best = 0;
  for (int64_t count = 1, before = 0; count <= most && !candidates.exhausted();
       before = std::exchange(count, next(count))) {
    const double known = candidates.best_seconds();
    offer(count);
    if (candidates.best_seconds() >= known) continue;
    best = count;
    before_best = before;
  }
  if (best > 0) {
    for (int64_t count = before_best + 1; count < next(best) && !candidates.exhausted(); ++count) offer(count);
  }
  return candidates.best();
}

}  // namespace remat::planners

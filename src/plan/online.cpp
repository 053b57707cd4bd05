// The planner `online`: what the policy that sessions follow without a plan would give up, as a plan.
#include <algorithm>

#include "plan/candidates.h"
#include "plan/online_step.h"
#include "plan/planners.h"

namespace remat::planners {
namespace {

/// Limits are shares of plain's activation peak. Those next below the budget are tried, and below them every 8th. Which
/// these are does not depend on the budget, or the smallest budget that is named where nothing fits would have others,
/// and perhaps no plan.
constexpr int32_t kLimits = 256, kNext = 4, kEvery = 8;

}  // namespace

Actions online(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  // What the policy packs is its own choice.
  Candidates candidates(graph, budget_bytes, {.pack = false});
  OnlineStep step(graph, options);
  const auto room = static_cast<double>(candidates.plain_peak() - graph.baseline_bytes);
  const auto limit = [&](int32_t i) { return graph.baseline_bytes + static_cast<int64_t>(room * i / kLimits); };
  int32_t first = kLimits;
  while (first > 0 && limit(first) > budget_bytes) --first;
  // A plan gives up from the beginning what the policy gives up when memory runs short, and its replays take memory at
  // other times. So what the policy does under a budget may not fit it.
  for (int32_t i = first; i > 0 && !candidates.exhausted(); --i) {
    const bool regular = i % kEvery == 0;
    if (!regular && first - i >= kNext) continue;
    if (candidates.offer(step.run(limit(i))) || (regular && step.gave_up())) break;
  }
  return candidates.best();
}

}  // namespace remat::planners

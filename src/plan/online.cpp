// The planner `online`: the evictions of the policy that sessions follow without a plan, as a plan.
#include <algorithm>

#include "plan/candidates.h"
#include "plan/online_step.h"
#include "plan/planners.h"

namespace remat::planners {
namespace {

/// Limits are multiples of a 256th of plain's activation peak. The kNext limits below the budget are tried, and below
/// them every kEvery-th. These do not depend on the budget: for the smallest budget that a refusal names, the same are
/// tried again, and one of them fits.
constexpr int32_t kLimits = 256, kNext = 4, kEvery = 8;

}  // namespace

Actions online(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  // The policy packs by itself, so the candidates are not tried packed.
  Candidates candidates(graph, budget_bytes, {.pack = false});
  OnlineStep step(graph, options);
  const auto activation_peak = static_cast<double>(candidates.plain_peak() - graph.baseline_bytes);
  const auto limit = [&](int32_t i) {
    return graph.baseline_bytes + static_cast<int64_t>(activation_peak * i / kLimits);
  };
  int32_t first = kLimits;
  while (first > 0 && limit(first) > budget_bytes) --first;
  // A plan drops a value as soon as it is idle, the policy evicts it when memory runs short: the replays take memory at
  // other times, so the plan of a run under a limit may have a higher peak than the limit.
  for (int32_t i = first; i > 0 && !candidates.exhausted(); --i) {
    const bool regular = i % kEvery == 0;
    if (!regular && first - i >= kNext) continue;
    if (candidates.offer(step.run(limit(i))) || (regular && step.has_stopped())) break;
  }
  return candidates.best();
}

}  // namespace remat::planners

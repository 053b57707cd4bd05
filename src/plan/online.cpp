// The planner `online`: what the policy that sessions follow without a plan would give up, as a plan.
#include <algorithm>

#include "plan/candidates.h"
#include "plan/online_step.h"
#include "plan/planners.h"
#include "plan/starts.h"

namespace remat::planners {
namespace {

/// Limits that are tried, from plain's peak down. They do not depend on the budget, or the smallest budget that is
/// named where nothing fits would give other limits, and perhaps no plan.
constexpr int32_t kLimits = 256;
/// Where there are so many values that one step takes long.
constexpr size_t kManyValues = 4000;
constexpr int32_t kFewLimits = 16;

}  // namespace

void offer_online(Candidates& candidates, const Graph& graph, int64_t budget_bytes, PlannerOptions options,
                  Tries tries) {
  OnlineStep step(graph, options);
  const auto room = static_cast<double>(candidates.plain_peak() - graph.baseline_bytes);
  const int32_t limits = graph.values.size() < kManyValues ? kLimits : kFewLimits;
  // A plan gives up from the beginning what the policy gives up when memory runs short, and its replays take memory at
  // other times. So what the policy does under a budget may not fit it.
  const auto limit = [&](int32_t i) { return graph.baseline_bytes + static_cast<int64_t>(room * i / limits); };
  int32_t first = limits;
  while (first > 0 && limit(first) > budget_bytes) --first;
  for (int32_t i = first; i > 0 && !candidates.exhausted(); --i) {
    if (candidates.offer(step.run(limit(i)))) return;
    if (step.gave_up() && tries == Tries::kSome) return;
  }
  // Nothing fits. How low does it go?
  if (tries == Tries::kSome) return;
  for (int32_t i = first + 1; i <= limits && !candidates.exhausted(); ++i) candidates.offer(step.run(limit(i)));
}

Actions online(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  // What the policy packs is its own choice.
  Candidates candidates(graph, budget_bytes, {.pack = false});
  offer_online(candidates, graph, budget_bytes, options, Tries::kAll);
  return candidates.best();
}

}  // namespace remat::planners

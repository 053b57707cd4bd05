#include "plan/starts.h"

#include <algorithm>
#include <cstdint>

#include "plan/simulate.h"

namespace remat::planners {
namespace {

/// Simulations of each planner, as Candidates::exhausted() counts them.
constexpr int64_t kWorkPerOperator = 10'000, kLeastWork = 4'000'000, kMostWork = 24'000'000;
/// The part of it that may be replays of one of the plans of `revolve`: with few checkpoints they replay the step
/// dozens of times, and would leave too little for the others.
constexpr int64_t kPartOfWork = 200;
constexpr int64_t kPartOfWorkOfOne = 16;  ///< where there is one plan alone

/// Hardly anything has a lower peak: beside what plain has, there is only what one replay needs.
Actions all_dropped_again(const Graph& graph) {
  Actions actions(graph.values.size(), Action::kKeep);
  for (size_t v = 0; v < actions.size(); ++v) {
    if (graph.values[v].returns()) actions[v] = Action::kRecomputeEachTime;
  }
  return actions;
}

}  // namespace

void offer_starts(Frontier& frontier, const Graph& graph, PlannerOptions options) {
  const auto operators = static_cast<int64_t>(graph.operators.size());
  const int64_t work = std::clamp(kWorkPerOperator * operators, kLeastWork, kMostWork);
  const auto add = [&](Candidates::Limits limits, auto&& offer_some) {
    // No budget is so small, so that none of them stops at the first plan that fits.
    Candidates candidates(graph, INT64_MIN, options, limits);
    offer_some(candidates);
    frontier.offer(candidates.frontier());
  };
  add({.work = work}, [&](Candidates& candidates) { offer_segments(candidates, graph, Tries::kSome); });
  add({.work = work, .replays = work / kPartOfWork}, [&](Candidates& candidates) { offer_revolve(candidates, graph); });
  add({.replays = work / kPartOfWorkOfOne},
      [&](Candidates& candidates) { candidates.offer(all_dropped_again(graph)); });
  add({.work = work}, [&](Candidates& candidates) { offer_rotor(candidates, graph, options, Tries::kSome); });
  offer_families(frontier, graph, options);
}

void offer_choices(Frontier& frontier, const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Simulator simulator(graph);
  for (const auto& choose : {drop_all, segments, articulation_memory, articulation_speed, selective, rotor, revolve}) {
    const Actions actions = choose(graph, budget_bytes, options);
    frontier.offer(simulator.run(actions), actions);
  }
  Candidates candidates(graph, budget_bytes, {.pack = false});
  offer_online(candidates, graph, budget_bytes, options, Tries::kSome);
  frontier.offer(candidates.frontier());
}

}  // namespace remat::planners

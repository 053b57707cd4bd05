// The planner `auto`. It starts from what it finds in no time (everything kept, then the cheapest given up until the
// budget is kept: greedy.h) and from what every other planner chooses for the very budget, so that it is never worse
// than any of them, and searches on from the best (search.h). docs/algorithms.md has the whole story.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "plan/choices.h"
#include "plan/greedy.h"
#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/search.h"
#include "plan/simulate.h"

namespace remat::planners {
namespace {

/// Of the search for one budget, as IncrementalSimulator::work() counts: this sets the planning time. So
/// much for each operator, up to a limit, and a little for each beyond.
constexpr int64_t kLeastWork = 10'000'000, kWorkPerOperator = 220'000, kMostWork = 120'000'000, kWorkBeyond = 15'000;
/// Several searches one after another beat a long one where budgets are tight: for the lowest peak, and to refine, then
/// each so many times as long.
constexpr int kSearchesOnwards = 5;
constexpr int64_t kTimesToRefine = 3;
constexpr int64_t kPartOfCurve = 4;  ///< a part of it, for each budget of a curve
constexpr int64_t kRungs = 8;        ///< budgets above the one, and below it, that plans_around() looks at too
/// Operators that the first plans of a search may replay: such as replay more take too long to look at.
constexpr int64_t kMostReplays = 2'000'000;

int64_t work_for(int64_t operators) {
  return std::min(kMostWork, kLeastWork + kWorkPerOperator * operators) + kWorkBeyond * operators;
}

class Automatic {
 public:
  Automatic(const Graph& graph, PlannerOptions options)
      : graph_(graph),
        options_(options),
        work_(work_for(static_cast<int64_t>(graph.operators.size()))),
        simulator_(graph) {
    const Actions keep(graph.values.size(), Action::kKeep);
    const Simulation plain = simulator_.run(keep);
    plain_peak_ = plain.peak_bytes;
    front.offer(plain, keep);
  }

  void plan(int64_t limit, int64_t part) {
    if (limit >= plain_peak_) return;
    start(limit);
    if (front.within(limit) == nullptr) front.offer(lowest());
    if (front.within(limit) == nullptr) return;
    Search search(graph_, options_, front);
    search.run(limit, work_ / part);
    for (int i = 0; options_.refine && i < kSearchesOnwards; ++i) search.run(limit, kTimesToRefine * work_);
  }

  /// Plans for more and for less than `limit`, a few of each: with no look at what other planners choose.
  void plan_around(int64_t limit) {
    const int64_t lowest = limit - std::max<int64_t>(0, limit - floor_of(graph_).peak_bytes) / 2;
    for (const auto& [high, low] : {std::pair{plain_peak_, limit}, {limit, lowest}}) {
      for (int64_t rung = 1; rung < kRungs; ++rung) {
        const int64_t within = high - (high - low) / kRungs * rung;
        if (within >= plain_peak_) continue;
        choose_greedily(within);
        Search(graph_, options_, front).run(within, work_ / kRungs);
      }
    }
  }

  /// How low does it go? The same for every budget, so that a budget that a refusal names is one that is found.
  const ParetoFront& lowest() {
    if (!lowest_) {
      Automatic automatic(graph_, options_);
      automatic.go_low(floor_of(graph_).peak_bytes);
      lowest_ = std::move(automatic.front);
    }
    return *lowest_;
  }

  ParetoFront front;

 private:
  void choose_greedily(int64_t limit) {
    Actions actions(graph_.values.size(), Action::kKeep);
    const Simulation run = Greedy(graph_, simulator_, options_).descend(actions, limit, kMostReplays);
    front.offer(run, actions);
  }

  void start(int64_t limit) {
    choose_greedily(limit);
    offer_choices(front, graph_, limit, options_);
  }

  void go_low(int64_t limit) {
    Actions each_time(graph_.values.size(), Action::kKeep);
    for (size_t v = 0; v < each_time.size(); ++v) {
      if (graph_.values[v].returns()) each_time[v] = Action::kRecomputeEachTime;
    }
    // Hardly anything has a lower peak: beside what plain has, there is only what one replay needs.
    const Simulation run = simulator_.run(each_time, kMostReplays);
    if (!run.stopped) front.offer(run, each_time);
    start(limit);
    Search search(graph_, options_, front);
    for (int i = 0; i < kSearchesOnwards; ++i) search.run(limit, work_);
  }

  const Graph& graph_;
  const PlannerOptions options_;
  const int64_t work_;
  Simulator simulator_;
  int64_t plain_peak_ = 0;
  std::optional<ParetoFront> lowest_;
};

}  // namespace

ParetoFront plans_around(const Graph& graph, int64_t limit, PlannerOptions options) {
  Automatic automatic(graph, options);
  automatic.plan_around(limit);
  automatic.plan(limit, 1);
  return std::move(automatic.front);
}

ParetoFront plans_of_curve(const Graph& graph, std::vector<int64_t> limits, PlannerOptions options) {
  options.refine = false;
  Automatic automatic(graph, options);
  std::sort(limits.rbegin(), limits.rend());
  for (const int64_t limit : limits) automatic.plan(limit, kPartOfCurve);
  automatic.front.offer(automatic.lowest());
  return std::move(automatic.front);
}

Actions automatic(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Automatic automatic(graph, options);
  automatic.plan(budget_bytes, 1);
  const ParetoFront::Point* const found = automatic.front.within(budget_bytes);
  return found != nullptr ? found->actions : automatic.lowest().lowest().actions;
}

}  // namespace remat::planners

// The planner `auto`. Its warm starts are a greedy plan (greedy.h) and the plans of all other planners for the same
// budget, so that it is never worse than any of them. Where all plans can be tried (exhaustive.h) it tries them;
// otherwise it goes on from the best by simulated annealing (search.h). docs/algorithms.md has the details.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "plan/exhaustive.h"
#include "plan/greedy.h"
#include "plan/pareto_front.h"
#include "plan/planners.h"
#include "plan/search.h"
#include "plan/simulate.h"

namespace remat::planners {
namespace {

/// The work of the search for one budget, as counted by IncrementalSimulator::work(): this sets the planning time.
/// kWorkPerOperator counts up to kMostWork, kWorkBeyond for every operator.
constexpr int64_t kLeastWork = 10'000'000, kWorkPerOperator = 600'000, kMostWork = 120'000'000, kWorkBeyond = 15'000;
/// Where budgets are tight, several searches one after another, each kHotter times hotter than the last, find faster
/// plans than one long search: for the lowest peak, and with PlannerOptions::refine, where each has kTimesToRefine
/// times the work.
constexpr int kSearchesOnwards = 5;
constexpr double kHotter = 4;
constexpr int64_t kTimesToRefine = 3;
/// The work of trying all plans for one budget, and with PlannerOptions::refine.
constexpr int64_t kWorkToTryAll = 20'000'000, kWorkToTryAllRefined = 300'000'000;
constexpr int kMostLower = 16;       ///< so often a lower peak is looked for by trying all plans
constexpr int64_t kPartOfCurve = 4;  ///< each budget of a curve is searched with the work divided by this
constexpr int64_t kRungs = 8;        ///< plans_around() plans for kRungs - 1 budgets above the given one, and below it
/// Replayed operators after which the simulation of a warm start ends: it would take too long.
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
    // What it finds without coming to an end is no better place to begin a search: that is offered afterwards.
    ParetoFront tried = front;
    const bool all =
        Exhaustive(graph_, options_, tried).run(limit, options_.refine ? kWorkToTryAllRefined : kWorkToTryAll);
    if (!all) {
      Search search(graph_, options_, front);
      search.run(limit, work_ / part);
      if (options_.refine) go_on(search, limit, kTimesToRefine * work_);
    }
    front.offer(tried);
  }

  /// Plans for some larger and smaller limits, with the greedy plan as the only warm start.
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

  /// The plans with the lowest peaks. They do not depend on the budget: a plan is found for the smallest budget that a
  /// refusal names.
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

  /// Offers the warm starts: the greedy plan, and those of all other planners.
  void start(int64_t limit) {
    choose_greedily(limit);
    for (const auto& planner :
         {drop_all, segments, articulation_memory, articulation_speed, selective, rotor, revolve, online}) {
      const Actions actions = planner(graph_, limit, options_);
      front.offer(simulator_.run(actions), actions);
    }
  }

  /// `work` for each search.
  static void go_on(Search& search, int64_t limit, int64_t work) {
    double heat = 1;
    for (int i = 0; i < kSearchesOnwards; ++i, heat *= kHotter) search.run(limit, work, heat);
  }

  void go_low(int64_t limit) {
    Actions each_time(graph_.values.size(), Action::kKeep);
    for (size_t v = 0; v < each_time.size(); ++v) {
      if (graph_.values[v].returns()) each_time[v] = Action::kRecomputeEachTime;
    }
    // Its peak is among the lowest: beyond the bytes of plain that cannot be evicted it has those of one replay.
    const Simulation run = simulator_.run(each_time, kMostReplays);
    if (!run.stopped) front.offer(run, each_time);
    start(limit);
    ParetoFront tried = front;
    if (!try_lower(tried)) {
      Search search(graph_, options_, front);
      go_on(search, limit, work_);
      try_lower(front);
    }
    front.offer(tried);
  }

  /// Tries all plans with lower peaks than the lowest, until there is none, as far as that can be done. Returns whether
  /// it came to the end.
  bool try_lower(ParetoFront& of) const {
    Exhaustive exhaustive(graph_, options_, of);
    for (int i = 0; i < kMostLower; ++i) {
      const int64_t peak = of.lowest_peak();
      if (!exhaustive.run(peak - 1, kWorkToTryAll)) return false;
      if (of.lowest_peak() == peak) return true;
    }
    return false;
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

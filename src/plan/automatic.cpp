// The planner `auto`. Its warm starts are a greedy plan (greedy.h) and the plans of all other planners for the same
// budget, so that it is never worse than any of them. Where all plans can be tried (exhaustive.h) it tries them;
// otherwise it goes on from the best by simulated annealing (search.h). Where the graph has a tier, it then plans again
// beside moves of more and more values (moves.h). docs/algorithms.md has the details.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "plan/exhaustive.h"
#include "plan/greedy.h"
#include "plan/moves.h"
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
/// Of the bytes of all values worth moving, the shares that are tried first: 1, 1/2, 1/4, ... Then kMoreShares times
/// the middle between the best share and its neighbours.
constexpr int kFirstShares = 5, kMoreShares = 3;
constexpr int64_t kPartBesideMoves = 4;  ///< each share is searched with the work divided by this
/// Replayed operators after which the simulation of a warm start ends: it would take too long.
constexpr int64_t kMostReplays = 2'000'000;

/// REMAT_SEARCH_PERCENT=10 in the environment has searches do a tenth of their work: for tests of what follows plans,
/// whatever they cost. Graphs of which all plans can be tried are planned as ever.
int64_t search_percent() {
  static const int64_t percent = [] {
    const char* const given = std::getenv("REMAT_SEARCH_PERCENT");
    const std::string_view text = given == nullptr ? "" : given;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_percent = error == std::errc() && end == text.data() + text.size() && number > 0 && number <= 100;
    return is_percent ? number : int64_t{100};
  }();
  return percent;
}

int64_t work_for(int64_t operators) {
  const int64_t work = std::min(kMostWork, kLeastWork + kWorkPerOperator * operators) + kWorkBeyond * operators;
  return work * search_percent() / 100;
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
    front_.offer(plain, keep);
  }

  void plan(int64_t limit, int64_t part) {
    if (limit >= plain_peak_) return;
    plan_without_moves(limit, part);
    if (moves()) plan_moves(limit, part);
  }

  /// Plans for some larger and smaller limits, with the greedy plan as the only warm start.
  void plan_around(int64_t limit) {
    const int64_t lowest = limit - std::max<int64_t>(0, limit - floor_of(graph_).peak_bytes) / 2;
    for (const auto& [high, low] : {std::pair{plain_peak_, limit}, {limit, lowest}}) {
      for (int64_t rung = 1; rung < kRungs; ++rung) {
        const int64_t within = high - (high - low) / kRungs * rung;
        if (within >= plain_peak_) continue;
        choose_greedily(within);
        Search(graph_, options_, front_).run(within, work_ / kRungs);
      }
    }
  }

  /// Offers the plans with the lowest peaks. They do not depend on the budget: a plan is found for the smallest budget
  /// that a refusal names.
  void offer_lowest() {
    if (!lowest_) {
      Automatic automatic(graph_, options_);
      automatic.go_low();
      lowest_ = std::pair(std::move(automatic.front_), std::move(automatic.moving_));
    }
    front_.offer(lowest_->first);
    moving_.offer(lowest_->second);
  }

  /// The plans that were found and move no values.
  const ParetoFront& unmoved() const { return front_; }
  /// All plans that were found.
  ParetoFront all() const {
    ParetoFront plans = front_;
    plans.offer(moving_);
    return plans;
  }

 private:
  enum class WarmStarts : uint8_t {
    kGreedy,  ///< the greedy plan
    kAll,     ///< those of all other planners, too
  };

  bool moves() const { return graph_.tier.has_value() && options_.move; }

  void plan_without_moves(int64_t limit, int64_t part) {
    start(limit);
    if (front_.within(limit) == nullptr && looks_low_) offer_lowest();
    if (front_.within(limit) == nullptr) return;
    // What it finds without coming to an end is no better place to begin a search: that is offered afterwards.
    ParetoFront tried = front_;
    const bool all =
        Exhaustive(graph_, options_, tried).run(limit, options_.refine ? kWorkToTryAllRefined : kWorkToTryAll);
    if (!all) {
      Search search(graph_, options_, front_);
      search.run(limit, work_ / part);
      if (options_.refine) go_on(search, limit, kTimesToRefine * work_);
    }
    front_.offer(tried);
  }

  /// Moves more and more of the values worth it.
  void plan_moves(int64_t limit, int64_t part) {
    const std::vector<int32_t> values = worth_moving(graph_);
    std::map<double, double> seconds;  // by share of the bytes: of the fastest plan within the limit
    const auto* const none = front_.within(limit);
    seconds[0] = none != nullptr ? none->seconds : std::numeric_limits<double>::infinity();
    const auto try_share = [&](double share) {
      if (!seconds.contains(share))
        seconds[share] = plan_beside(first_of(values, share), limit, part, WarmStarts::kGreedy);
    };
    double share = 1;
    for (int i = 0; i < kFirstShares; ++i, share /= 2) try_share(share);
    for (int i = 0; i < kMoreShares; ++i) {
      const auto best = std::ranges::min_element(seconds, {}, [](const auto& entry) { return entry.second; });
      const double at = best->first;
      const double below = best == seconds.begin() ? at : std::prev(best)->first;
      const double above = std::next(best) == seconds.end() ? at : std::next(best)->first;
      try_share((below + at) / 2);
      try_share((at + above) / 2);
    }
    const auto best = std::ranges::min_element(seconds, {}, [](const auto& entry) { return entry.second; });
    if (best->first > 0) plan_beside(first_of(values, best->first), limit, part, WarmStarts::kAll);
  }

  /// The first of `values` that have this share of the bytes of all.
  std::vector<bool> first_of(const std::vector<int32_t>& values, double share) const {
    double bytes = 0, taken = 0;
    for (const int32_t v : values) bytes += static_cast<double>(graph_.values[v].bytes);
    std::vector<bool> first(graph_.values.size(), false);
    for (const int32_t v : values) {
      if (taken >= share * bytes) break;
      first[v] = true;
      taken += static_cast<double>(graph_.values[v].bytes);
    }
    return first;
  }

  /// Plans what is not moved. Returns the seconds of the fastest plan within the limit, infinite where there is none.
  double plan_beside(const std::vector<bool>& moved, int64_t limit, int64_t part, WarmStarts warm_starts) {
    const Graph rest = graph_beside_moves(graph_, moved);
    PlannerOptions options = options_;
    options.refine = options.refine && warm_starts == WarmStarts::kAll;
    double fastest = std::numeric_limits<double>::infinity();
    int64_t within = limit;
    // Replays bring moved values back earlier than `rest` has them: then once more, with so much less.
    for (int i = 0; i < 2 && within > 0; ++i) {
      Automatic beside(rest, options);
      beside.looks_low_ = false;
      beside.warm_starts_ = warm_starts;
      beside.plan(within, part * kPartBesideMoves);
      const ParetoFront::Point* const point = beside.front_.within(within);
      if (point == nullptr) break;
      const auto run = offer_joint(point->actions, moved, limit);
      if (!run) break;
      if (run->peak_bytes <= limit) {
        fastest = run->seconds;
        break;
      }
      within -= run->peak_bytes - limit;
    }
    return fastest;
  }

  /// The plan that moves values, and has these actions for the others. Empty where it takes too long, or the tier is
  /// too small.
  std::optional<Simulation> offer_joint(Actions actions, const std::vector<bool>& moved, int64_t limit) {
    for (size_t v = 0; v < actions.size(); ++v) {
      if (moved[v]) actions[v] = Action::kMove;
    }
    const Simulation run = simulator_.run(actions, limit, kMostReplays);
    if (run.stopped || run.tier_bytes > graph_.tier->bytes) return std::nullopt;
    moving_.offer(run, actions);
    return run;
  }

  void choose_greedily(int64_t limit) {
    Actions actions(graph_.values.size(), Action::kKeep);
    const Simulation run = Greedy(graph_, simulator_, options_).descend(actions, limit, kMostReplays);
    front_.offer(run, actions);
  }

  /// Offers the warm starts.
  void start(int64_t limit) {
    choose_greedily(limit);
    if (warm_starts_ == WarmStarts::kGreedy) return;
    for (const auto& planner :
         {drop_all, segments, articulation_memory, articulation_speed, selective, rotor, revolve, online}) {
      const Actions actions = planner(graph_, limit, options_);
      front_.offer(simulator_.run(actions), actions);
    }
  }

  /// `work` for each search.
  static void go_on(Search& search, int64_t limit, int64_t work) {
    double heat = 1;
    for (int i = 0; i < kSearchesOnwards; ++i, heat *= kHotter) search.run(limit, work, heat);
  }

  void go_low() {
    const int64_t limit = floor_of(graph_).peak_bytes;
    Actions each_time(graph_.values.size(), Action::kKeep);
    for (size_t v = 0; v < each_time.size(); ++v) {
      if (graph_.values[v].returns()) each_time[v] = Action::kRecomputeEachTime;
    }
    // Its peak is among the lowest: beyond the bytes of plain that cannot be evicted it has those of one replay.
    const Simulation run = simulator_.run(each_time, limit, kMostReplays);
    if (!run.stopped) front_.offer(run, each_time);
    start(limit);
    ParetoFront tried = front_;
    if (!try_lower(tried)) {
      Search search(graph_, options_, front_);
      go_on(search, limit, work_);
      try_lower(front_);
    }
    front_.offer(tried);
    if (!moves()) return;
    const std::vector<bool> moved = first_of(worth_moving(graph_), 1);
    const Graph rest = graph_beside_moves(graph_, moved);
    Automatic beside(rest, options_);
    beside.go_low();
    for (const auto& [peak, plan] : beside.front_.points()) offer_joint(plan.actions, moved, peak);
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
  WarmStarts warm_starts_ = WarmStarts::kAll;
  bool looks_low_ = true;  ///< plan() looks for the lowest peaks where it finds none within the limit
  ParetoFront front_;      ///< plans that move nothing: what searches begin with
  ParetoFront moving_;     ///< plans that move values
  std::optional<std::pair<ParetoFront, ParetoFront>> lowest_;
};

}  // namespace

FoundPlans plans_around(const Graph& graph, int64_t limit, PlannerOptions options) {
  Automatic automatic(graph, options);
  automatic.plan_around(limit);
  automatic.plan(limit, 1);
  return {.front = automatic.all(), .unmoved = automatic.unmoved()};
}

ParetoFront plans_of_curve(const Graph& graph, std::vector<int64_t> limits, PlannerOptions options) {
  options.refine = false;
  Automatic automatic(graph, options);
  std::sort(limits.rbegin(), limits.rend());
  for (const int64_t limit : limits) automatic.plan(limit, kPartOfCurve);
  automatic.offer_lowest();
  return automatic.all();
}

Actions automatic(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Automatic automatic(graph, options);
  automatic.plan(budget_bytes, 1);
  ParetoFront plans = automatic.all();
  if (plans.within(budget_bytes) == nullptr) {
    automatic.offer_lowest();
    plans = automatic.all();
  }
  const ParetoFront::Point* const found = plans.within(budget_bytes);
  return found != nullptr ? found->actions : plans.lowest().actions;
}

}  // namespace remat::planners

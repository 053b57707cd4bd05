// The planner `auto`: a ladder of budgets from plain's peak down to where nothing fits. On each rung the greedy choice
// (greedy.h) and what was found on the rung above are starts for simulated annealing (Kirkpatrick, Gelatt and Vecchi
// 1983), judged by the simulator at every step; the better result goes to the next rung. All that was found and nothing
// beats is kept (frontier.h); the plan is the fastest of it within the budget.
//
// What the planners of the literature choose, and what gives up values by families (starts.h), joins what was found,
// and where it is better, or reaches lower, the search goes on from there.
//
// What was tried besides, with the figures: docs/algorithms.md.
#include <algorithm>
#include <array>
#include <cstdint>

#include "plan/annealing.h"
#include "plan/frontier.h"
#include "plan/greedy.h"
#include "plan/online_step.h"
#include "plan/planners.h"
#include "plan/simulate.h"
#include "plan/starts.h"

namespace remat::planners {
namespace {

/// Simulations in all: this sets the planning time.
constexpr int64_t kTrials = 60'000;
constexpr int64_t kTrialsPerValue = 1000;
constexpr int64_t kMostOperatorTrials = 8'000'000;
constexpr size_t kFewOperators = 500;  ///< beyond, annealing finds less and less
constexpr int64_t kMostOperatorTrialsOfMany = 2'000'000;
constexpr int64_t kRefiningTrials = 120'000;  ///< of one budget
constexpr int64_t kMostRefiningOperatorTrials = 20'000'000;
constexpr int kRungs = 24;  ///< with annealing
constexpr int kMoreRounds = 4;
constexpr size_t kQuickOnline = 1000;    ///< operators up to which the online policy takes little where little fits
constexpr int kLowRungs = 4;             ///< from where those end down to the lowest peak that any plan could have
constexpr double kBetter = 0.99;         ///< seconds of a start, in terms of what is known, that are worth a search
constexpr size_t kManyOperators = 5000;  ///< from here on without those
constexpr int kSteps = 4;                ///< between two of them, greedy choices alone

/// bytes * part / whole, which might overflow.
int64_t share_of(int64_t bytes, int part, int whole) { return bytes / whole * part + bytes % whole * part / whole; }

class Automatic {
 public:
  Automatic(const Graph& graph, PlannerOptions options)
      : graph_(graph), options_(options), simulator_(graph), greedy_(graph, simulator_, options), annealing_(graph) {
    // Where there are few operators, each is a larger part of the forward pass.
    annealing_.hot = std::max(Annealing::kHot, 1 / static_cast<double>(graph.operators.size() + 1));
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].returns()) choices_.push_back(static_cast<int32_t>(v));
    }
  }

  /// Does not depend on any budget, so that all budgets get their plans from one curve.
  Frontier explore() {
    const Actions keep(graph_.values.size(), Action::kKeep);
    const int64_t top = try_out(keep).peak_bytes;
    if (choices_.empty()) return frontier_;
    const auto operators = static_cast<int64_t>(graph_.operators.size());
    const int64_t most = graph_.operators.size() < kFewOperators ? kMostOperatorTrials : kMostOperatorTrialsOfMany;
    const int64_t trials =
        std::min({kTrials, kTrialsPerValue * static_cast<int64_t>(choices_.size()), most / (operators + 1)});
    most_replays_ = 4 * most / kRungs;
    OnlineStep online(graph_, options_);
    const int64_t room = top - graph_.baseline_bytes;
    const int64_t steps = graph_.operators.size() < kManyOperators ? kSteps : 1;
    for (int rung = 1; rung < kRungs * steps; ++rung) {
      const int64_t limit = top - share_of(room, rung, kRungs * steps);
      Actions afresh = keep;
      frontier_.offer(greedy_.descend(afresh, limit, most_replays_ / kSteps), afresh);
      Actions onward = start(limit);
      frontier_.offer(greedy_.descend(onward, limit, most_replays_ / kSteps), onward);
      if (rung % steps != 0) continue;
      if (graph_.operators.size() < kManyOperators && !online.gave_up()) try_out(online.run(limit));
      anneal(start(limit), limit, trials / kRungs);
      settle(start(limit), limit, trials / kRungs);
      if (frontier_.within(limit) == nullptr) break;
    }
    // How low does it go?
    for (int round = 0; round < kMoreRounds; ++round) {
      const int64_t lowest = frontier_.lowest_peak();
      const int64_t limit = lowest - 1 - (lowest - graph_.baseline_bytes) / 64;
      anneal(frontier_.lowest().actions, limit, trials / kRungs);
      settle(frontier_.lowest().actions, frontier_.lowest_peak(), trials / kRungs);
    }
    most_replays_ = most / kRungs / 2;
    const int64_t lowest = frontier_.lowest_peak();
    add_starts(top, trials / kRungs / 2);
    go_lower(online, lowest, trials / kRungs / 2);
    return frontier_;
  }

  void refine(Frontier& frontier, int64_t limit) {
    if (choices_.empty()) return;
    const int64_t trials =
        std::min(kRefiningTrials, kMostRefiningOperatorTrials / static_cast<int64_t>(graph_.operators.size() + 1));
    frontier_ = std::move(frontier);
    offer_choices(frontier_, graph_, limit, options_);
    offer_families(frontier_, graph_, options_, limit);
    most_replays_ = kMostRefiningOperatorTrials;
    for (size_t round = 0; round < kDearSecondsInExcess.size(); ++round) {
      const Frontier::Point* const known = frontier_.within(limit);
      const bool dear = known != nullptr && known->seconds > kDear * annealing_.forward_seconds();
      if (round >= kRounds && !dear) break;
      annealing_.seconds_in_excess = dear ? kDearSecondsInExcess[round] : Annealing::kSecondsInExcess;
      search(limit, trials / static_cast<int64_t>(kRounds));
    }
    frontier = std::move(frontier_);
  }

 private:
  /// The ladder comes first, as if there were no starts: it finds the better plans of two where they differ little.
  void add_starts(int64_t top, int64_t trials) {
    const int64_t room = top - graph_.baseline_bytes;
    std::vector<std::pair<int64_t, double>> known;  // limits and seconds
    for (int rung = 1; rung < kRungs; ++rung) {
      const int64_t limit = top - share_of(room, rung, kRungs);
      if (const Frontier::Point* const point = frontier_.within(limit)) known.emplace_back(limit, point->seconds);
    }
    offer_starts(frontier_, graph_, options_);
    for (const auto& [limit, seconds] : known) {
      if (frontier_.within(limit)->seconds < kBetter * seconds) search(limit, trials);
    }
  }

  /// From `lowest`, below which the ladder found nothing, to the lowest peak that any plan could have. What fits there
  /// takes many times the seconds of what almost does, so both are starts, and bytes in excess count for more.
  void go_lower(OnlineStep& online, int64_t lowest, int64_t trials) {
    const int64_t room = lowest - floor_of(graph_).peak_bytes;
    if (room <= 0) return;
    annealing_.seconds_in_excess = kLowSecondsInExcess;
    int64_t above = lowest;
    for (int rung = 1; rung <= kLowRungs; ++rung) {
      const int64_t limit = lowest - share_of(room, rung, kLowRungs);
      const bool few = graph_.operators.size() < kFewOperators;
      const bool quick = rung == kLowRungs && graph_.operators.size() < kQuickOnline;
      if ((few || quick) && !online.gave_up()) try_out(online.run(limit));
      if (few) {
        Actions onward = start(limit);
        frontier_.offer(greedy_.descend(onward, limit, most_replays_ / kSteps), onward);
      }
      anneal(start(above), limit, trials);
      search(limit, trials);
      above = limit;
    }
  }

  void search(int64_t limit, int64_t trials) {
    anneal(start(limit), limit, trials);
    settle(start(limit), limit, trials);
  }

  Simulation try_out(const Actions& actions) {
    const Simulation run = simulator_.run(actions);
    frontier_.offer(run, actions);
    return run;
  }

  const Actions& start(int64_t limit) const {
    const Frontier::Point* const known = frontier_.within(limit);
    return known != nullptr ? known->actions : frontier_.lowest().actions;
  }

  /// Other than `before`, at random.
  Action another_action(int32_t value, Action before) {
    const bool by_policy = graph_.values[value].dropped;  // then kKeep is kRecompute
    for (;;) {
      const uint64_t draw = annealing_.random.below(8);
      const Action action = draw < 3                 ? Action::kKeep
                            : draw < 6 && !by_policy ? Action::kRecompute
                            : draw < 7               ? held_later(before)
                                                     : Action::kPack;
      if (action == before) continue;
      if (action == Action::kPack && (by_policy || !options_.pack || graph_.values[value].packed_bytes == 0)) continue;
      return action;
    }
  }

  /// A step further or back in when the value is held again.
  Action held_later(Action before) {
    if (before.kind == Action::Kind::kRecompute && before != Action::kRecomputeEachTime) {
      const bool back = before.held_from > 2 && annealing_.random.below(2) == 0;
      return Action::recompute(before.held_from + (back ? -1 : 1));
    }
    return annealing_.random.below(2) == 0 ? Action::recompute(2) : Action::kRecomputeEachTime;
  }

  void change(Actions& actions, int32_t value, Action action) {
    changes_.emplace_back(value, actions[value]);
    actions[value] = action;
  }

  /// One action or two, mostly of neighbours: what one gives up the other may keep.
  void change_some(Actions& actions) {
    const auto count = static_cast<int64_t>(choices_.size());
    auto place = static_cast<int64_t>(annealing_.random.below(choices_.size()));
    for (uint64_t c = 1 + annealing_.random.below(2); c > 0; --c) {
      const int32_t v = choices_[static_cast<size_t>(place)];
      change(actions, v, another_action(v, actions[v]));
      const bool far = annealing_.random.below(3) == 0;
      place = far ? static_cast<int64_t>(annealing_.random.below(choices_.size()))
                  : std::clamp<int64_t>(place + static_cast<int64_t>(annealing_.random.below(2 * kNear + 1)) - kNear, 0,
                                        count - 1);
    }
  }

  /// A run of neighbours at once: a segment is dropped, or kept.
  void change_run(Actions& actions) {
    const size_t first = annealing_.random.below(choices_.size());
    const size_t end = std::min(choices_.size(), first + 2 + annealing_.random.below(kNear));
    const Action action = annealing_.random.below(4) == 0 ? Action::kKeep : Action::kRecompute;
    for (size_t i = first; i < end; ++i) {
      const bool by_policy = graph_.values[choices_[i]].dropped && action == Action::kRecompute;
      change(actions, choices_[i], by_policy ? Action::kRecomputeEachTime : action);
    }
  }

  void anneal(Actions actions, int64_t limit, int64_t trials) {
    double now = annealing_.cost(try_out(actions), limit);
    int64_t replays = 0;
    for (int64_t trial = 0; trial < trials && replays < most_replays_; ++trial) {
      const double cooled = std::max(static_cast<double>(trial) / static_cast<double>(trials),
                                     static_cast<double>(replays) / static_cast<double>(most_replays_));
      changes_.clear();
      annealing_.random.below(kRunOdds) == 0 ? change_run(actions) : change_some(actions);
      const Simulation run = try_out(actions);
      replays += run.replays;
      const double then = annealing_.cost(run, limit);
      if (annealing_.accepts(now, then, cooled)) {
        now = then;
      } else {
        for (size_t c = changes_.size(); c-- > 0;) actions[changes_[c].first] = changes_[c].second;
      }
    }
  }

  /// Gives back what fits, and brings back once what need not be brought back again.
  void settle(Actions actions, int64_t limit, int64_t trials) {
    Simulation best = simulator_.run(actions);
    const size_t first = annealing_.random.below(choices_.size());
    int64_t replays = 0;
    for (size_t i = 0; i < choices_.size() && trials > 0 && replays < most_replays_; ++i) {
      const int32_t v = choices_[(first + i) % choices_.size()];
      for (const int64_t from : {0, 1, -1}) {
        const Action before = actions[v];
        const bool later = before.kind == Action::Kind::kRecompute && before.held_from > 1;
        if (before == Action::kKeep || (from != 0 && !later)) continue;
        if (from == -1 && (before.held_from == 2 || before == Action::kRecomputeEachTime)) continue;
        actions[v] = from == 0 ? Action::kKeep : Action::recompute(from == 1 ? 1 : before.held_from - 1);
        --trials;
        const Simulation run = try_out(actions);
        replays += run.replays;
        if (run.peak_bytes <= limit && run.seconds <= best.seconds) {
          best = run;
        } else {
          actions[v] = before;
        }
      }
    }
  }

  static constexpr int64_t kNear = 10;
  static constexpr double kLowSecondsInExcess = 100;
  static constexpr size_t kRounds = 2;  ///< of refining, and a last one where plans are dear
  /// Forward passes. Where a plan takes so much, one for a little more memory takes much less, and must not look
  /// better.
  static constexpr double kDear = 0.8;
  static constexpr std::array kDearSecondsInExcess = {300.0, 300.0, 1000.0};  ///< by round
  static constexpr uint64_t kRunOdds = 16;

  const Graph& graph_;
  const PlannerOptions options_;
  Simulator simulator_;
  Greedy greedy_;
  std::vector<int32_t> choices_;  ///< values that may be away, by age
  Annealing annealing_;
  int64_t most_replays_ = INT64_MAX;  ///< operators, of one annealing: near the lowest peak a step replays many times
  Frontier frontier_;
  std::vector<std::pair<int32_t, Action>> changes_;  ///< of the trial in progress: what was there before
};

}  // namespace

Frontier explore(const Graph& graph, PlannerOptions options) { return Automatic(graph, options).explore(); }

void refine(const Graph& graph, Frontier& frontier, int64_t limit, PlannerOptions options) {
  Automatic(graph, options).refine(frontier, limit);
}

Actions automatic(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  Frontier frontier = explore(graph, options);
  if (options.refine) {
    refine(graph, frontier, std::max<int64_t>(0, budget_bytes), options);
  } else {
    offer_choices(frontier, graph, budget_bytes, options);
  }
  const Frontier::Point* const found = frontier.within(budget_bytes);
  return found != nullptr ? found->actions : frontier.lowest().actions;
}

}  // namespace remat::planners

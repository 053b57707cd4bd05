// The planner `auto`: a ladder of budgets from plain's peak down to the one asked for. On each rung the greedy choice
// (greedy.h) and what was found on the rung above are starts for simulated annealing (Kirkpatrick, Gelatt and Vecchi
// 1983), judged by the simulator at every step; the better result goes to the next rung. The best fates that fit the
// last rung are the plan.
//
// What was tried besides, with the figures: docs/algorithms.md.
#include <algorithm>
#include <cmath>

#include "plan/greedy.h"
#include "plan/planners.h"
#include "plan/simulate.h"

namespace remat::planners {
namespace {

/// Simulations in all, for each operator of the graph: this sets the planning time.
constexpr int64_t kTrials = 40'000;
constexpr int64_t kMostOperatorTrials = 20'000'000;
constexpr int kRungs = 8;
constexpr int kMoreRounds = 3;  ///< where nothing fits yet

/// Steele, Lea and Flood 2014: the same numbers on every machine.
class SplitMix {
 public:
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  uint64_t state_ = 1;
};

class Automatic {
 public:
  Automatic(const Graph& graph, PlannerOptions options)
      : graph_(graph), options_(options), simulator_(graph), greedy_(graph, simulator_, options) {}

  Fates plan(int64_t budget) {
    Found best{Fates(graph_.values.size(), Fate::kKeep), {}};
    best.run = simulator_.run(best.fates);
    const int64_t top = best.run.peak_bytes;
    if (top <= budget || greedy_.droppable().empty()) return best.fates;
    const int64_t trials = std::min(kTrials, kMostOperatorTrials / static_cast<int64_t>(graph_.operators.size() + 1));
    for (int rung = 1; rung <= kRungs; ++rung) {
      const int64_t limit = top - (top - budget) * rung / kRungs;
      Found greedy{best.fates, {}};
      greedy.run = greedy_.descend(greedy.fates, limit);
      Found afresh{Fates(graph_.values.size(), Fate::kKeep), {}};
      afresh.run = greedy_.descend(afresh.fates, limit);
      best = better(better(std::move(greedy), std::move(afresh), limit), std::move(best), limit);
      anneal(best, limit, rung == kRungs ? trials / 2 : trials / 2 / (kRungs - 1));
    }
    for (int more = 0; more < kMoreRounds && best.run.peak_bytes > budget; ++more) anneal(best, budget, trials);
    settle(best, budget);
    return best.fates;
  }

 private:
  struct Found {
    Fates fates;
    Simulation run;
  };

  /// What fits, and in less time; else what comes closer to fit.
  static Found better(Found a, Found b, int64_t limit) {
    const auto excess = [&](const Found& f) { return std::max<int64_t>(0, f.run.peak_bytes - limit); };
    if (excess(a) != excess(b)) return excess(a) < excess(b) ? a : b;
    return a.run.seconds <= b.run.seconds ? a : b;
  }

  double cost(const Simulation& run, int64_t limit) const {
    // All of plain's activations in excess would cost as much as six forward passes.
    const double seconds_per_byte = 6 * scale_ / static_cast<double>(activations_);
    return run.seconds + seconds_per_byte * static_cast<double>(std::max<int64_t>(0, run.peak_bytes - limit));
  }

  /// A value other than `before` has, at random.
  Fate another_fate(int32_t value, Fate before) {
    for (;;) {
      const uint64_t draw = random_.below(8);
      const Fate fate = draw < 3 ? Fate::kKeep : draw < 6 ? Fate::kDrop : draw < 7 ? Fate::kDropAgain : Fate::kPack;
      if (fate == before) continue;
      if (fate == Fate::kPack && !(options_.pack && graph_.values[value].packed_bytes > 0)) continue;
      return fate;
    }
  }

  void change(Fates& fates, int32_t value, Fate fate) {
    changes_.emplace_back(value, fates[value]);
    fates[value] = fate;
  }

  /// One fate or two, mostly of neighbours: what one gives up the other may keep.
  void change_some(Fates& fates) {
    const auto& droppable = greedy_.droppable();
    const auto count = static_cast<int64_t>(droppable.size());
    auto place = static_cast<int64_t>(random_.below(droppable.size()));
    for (uint64_t c = 1 + random_.below(2); c > 0; --c) {
      const int32_t v = droppable[static_cast<size_t>(place)];
      change(fates, v, another_fate(v, fates[v]));
      const bool far = random_.below(3) == 0;
      place =
          far ? static_cast<int64_t>(random_.below(droppable.size()))
              : std::clamp<int64_t>(place + static_cast<int64_t>(random_.below(2 * kNear + 1)) - kNear, 0, count - 1);
    }
  }

  /// A run of neighbours at once: a segment is dropped, or kept.
  void change_run(Fates& fates) {
    const auto& droppable = greedy_.droppable();
    const size_t first = random_.below(droppable.size());
    const size_t end = std::min(droppable.size(), first + 2 + random_.below(kNear));
    const Fate fate = random_.below(4) == 0 ? Fate::kKeep : Fate::kDrop;
    for (size_t i = first; i < end; ++i) change(fates, droppable[i], fate);
  }

  void anneal(Found& found, int64_t limit, int64_t trials) {
    Fates fates = found.fates;
    double now = cost(found.run, limit);
    for (int64_t trial = 0; trial < trials; ++trial) {
      const double cooled = static_cast<double>(trial) / static_cast<double>(trials);
      const double temperature = kHot * scale_ * std::pow(kCold / kHot, cooled);
      changes_.clear();
      random_.below(kRunOdds) == 0 ? change_run(fates) : change_some(fates);
      const Simulation run = simulator_.run(fates);
      const double then = cost(run, limit);
      if (then <= now || random_.unit() < std::exp((now - then) / temperature)) {
        now = then;
        const bool first_fit = run.peak_bytes <= limit && found.run.peak_bytes > limit;
        const bool faster = run.peak_bytes <= limit && run.seconds < found.run.seconds;
        const bool closer = found.run.peak_bytes > limit && run.peak_bytes < found.run.peak_bytes;
        if (first_fit || faster || closer) found = {fates, run};
      } else {
        for (size_t c = changes_.size(); c-- > 0;) fates[changes_[c].first] = changes_[c].second;
      }
    }
  }

  /// Gives back what fits, and brings back once what need not be brought back again.
  void settle(Found& found, int64_t limit) {
    for (const Fate wanted : {Fate::kKeep, Fate::kDrop}) {
      for (const int32_t v : greedy_.droppable()) {
        const Fate before = found.fates[v];
        if (before == Fate::kKeep || (wanted == Fate::kDrop && before != Fate::kDropAgain)) continue;
        found.fates[v] = wanted;
        const Simulation run = simulator_.run(found.fates);
        const bool no_worse =
            run.peak_bytes <= std::max(limit, found.run.peak_bytes) && run.seconds <= found.run.seconds;
        if (no_worse) {
          found.run = run;
        } else {
          found.fates[v] = before;
        }
      }
    }
  }

  static constexpr double kHot = 1e-2, kCold = 1e-4;  ///< of the forward pass's time, at the start and the end
  static constexpr int64_t kNear = 10;
  static constexpr uint64_t kRunOdds = 16;

  const Graph& graph_;
  const PlannerOptions options_;
  Simulator simulator_;
  Greedy greedy_;
  SplitMix random_;
  std::vector<std::pair<int32_t, Fate>> changes_;  ///< of the trial in progress: what was there before
  double scale_ = forward_seconds();
  int64_t activations_ = saved_bytes();

  double forward_seconds() const {
    double seconds = 0;
    for (const GraphOperator& op : graph_.operators) seconds += op.seconds;
    return std::max(seconds, 1e-9);
  }
  int64_t saved_bytes() const {
    int64_t bytes = 1;
    for (const int32_t v : greedy_.droppable()) bytes += graph_.values[v].bytes;
    return bytes;
  }
};

}  // namespace

Fates automatic(const Graph& graph, int64_t budget_bytes, PlannerOptions options) {
  return Automatic(graph, options).plan(budget_bytes);
}

}  // namespace remat::planners

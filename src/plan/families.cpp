// Plans that treat values alike: what like operators made, all of one size (the cell states of a recurrent network, the
// projections of all layers), is given up by one rule. There are few such families and rules, so a search sees at once
// what a search by single values finds late or never: to give up the cheap half of every step of a long recurrence.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "plan/annealing.h"
#include "plan/starts.h"

namespace remat::planners {
namespace {

constexpr int kParts = 8;  ///< of a family, by age
/// What becomes of the members from part `begin` to part `end`; the others are kept.
struct Rule {
  Action action = Action::kKeep;
  int begin = 0, end = 0;
  size_t stride = 0;          ///< 0: of all of them, else ...
  bool spares_every = false;  ///< ... of all but every `stride`-th, or of these alone
};
constexpr std::array<size_t, 6> kStrides = {0, 0, 2, 4, 8, 16};

constexpr int kSteps = 16;         ///< a step of the descent counts for so much of the way down, at most
constexpr int kMostSteps = 200;    ///< there are fewer, unless steps are tiny
constexpr int kLimits = 12;        ///< that annealing aims at
constexpr int64_t kTrials = 8400;  ///< altogether
/// work_of() all that is simulated.
constexpr int64_t kWorkPerOperator = 20'000, kLeastWork = 100'000'000, kMostWork = 500'000'000;

class FamilySearch {
 public:
  FamilySearch(Frontier& frontier, const Graph& graph, PlannerOptions options)
      : frontier_(frontier),
        graph_(graph),
        pack_(options.pack),
        most_work_(std::clamp(kWorkPerOperator * static_cast<int64_t>(graph.operators.size()), kLeastWork, kMostWork)),
        simulator_(graph),
        annealing_(graph),
        actions_(graph.values.size(), Action::kKeep) {
    std::map<std::pair<std::string_view, int64_t>, std::vector<int32_t>> by_kind;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const GraphValue& value = graph.values[v];
      if (!value.droppable) continue;
      by_kind[{graph.operators[value.producer].name, value.bytes}].push_back(static_cast<int32_t>(v));
    }
    for (auto& [kind, members] : by_kind) families_.push_back(std::move(members));
    rules_.resize(families_.size());
  }

  /// Aims at limits from plain's peak down to `lowest`, one after another.
  void run(int64_t lowest, int limits) {
    if (families_.empty()) return;
    const Simulation plain = judge();
    const int64_t room = plain.peak_bytes - graph_.baseline_bytes;
    descend(plain, std::max<int64_t>(1, room / kSteps));
    follow(std::vector<Rule>(families_.size()));
    const int64_t step = (plain.peak_bytes - lowest) / limits;
    for (int limit = 1; limit <= limits; ++limit) anneal(plain.peak_bytes - step * limit, kTrials / limits);
  }

 private:
  using Family = std::vector<int32_t>;  ///< values, by age

  Simulation judge() {
    const Simulation run = simulator_.run(actions_);
    work_ += work_of(graph_, run);
    frontier_.offer(run, actions_);
    return run;
  }

  void try_rule(const Family& family, const Rule& rule) {
    const size_t count = family.size();
    for (size_t i = 0; i < count; ++i) {
      const bool inside = i * kParts >= count * rule.begin && i * kParts < count * rule.end;
      const bool every = rule.stride == 0 || (i % rule.stride == 0) != rule.spares_every;
      const int32_t v = family[i];
      const bool possible = rule.action != Action::kPack || graph_.values[v].packed_bytes > 0;
      actions_[v] = inside && every && possible ? rule.action : Action::kKeep;
    }
  }

  void follow(size_t family, const Rule& rule) { try_rule(families_[family], rules_[family] = rule); }
  void follow(const std::vector<Rule>& rules) {
    for (size_t f = 0; f < rules.size(); ++f) follow(f, rules[f]);
  }

  bool packs(const Family& family) const { return pack_ && graph_.values[family.front()].packed_bytes > 0; }

  /// The rule that saves most bytes for a second, again and again, until none saves any.
  void descend(Simulation now, int64_t most_saved) {
    const auto exhausted = [this] { return work_ >= most_work_ / 2; };  // the other half is for annealing
    for (int step = 0; step < kMostSteps && !exhausted(); ++step) {
      std::optional<size_t> best;
      double best_price = 0;
      Rule best_rule;
      Simulation best_run;
      const auto consider = [&](size_t f, const Rule& rule) {
        try_rule(families_[f], rule);
        const Simulation run = judge();
        const int64_t saved = std::min(now.peak_bytes - run.peak_bytes, most_saved);
        if (saved <= 0) return;
        const double price = (std::max(0.0, run.seconds - now.seconds) + 1e-7) / static_cast<double>(saved);
        if (best && price >= best_price) return;
        best = f;
        best_price = price;
        best_rule = rule;
        best_run = run;
      };
      for (size_t f = 0; f < families_.size() && !exhausted(); ++f) {
        // Backward asks for the oldest last: what is given up for longest.
        for (int end = 0; end <= kParts; ++end) {
          for (const size_t stride : {0, 4, 16}) {
            if (families_[f].size() >= 2 * stride)
              consider(f, {Action::kRecompute, 0, end, stride, /*spares_every=*/true});
          }
        }
        if (packs(families_[f])) consider(f, {Action::kPack, 0, kParts});
        try_rule(families_[f], rules_[f]);
      }
      if (!best) return;
      follow(*best, best_rule);
      now = best_run;
    }
  }

  Rule random_rule(const Family& family) {
    if (packs(family) && annealing_.random.below(4) == 0) return {Action::kPack, 0, kParts};
    if (annealing_.random.below(4) == 0) return {};
    Rule rule{Action::kRecompute, 0, kParts};
    if (annealing_.random.below(2) == 0) rule.begin = static_cast<int>(annealing_.random.below(kParts));
    rule.end = rule.begin + 1 + static_cast<int>(annealing_.random.below(static_cast<uint64_t>(kParts - rule.begin)));
    rule.stride = kStrides[annealing_.random.below(kStrides.size())];
    if (family.size() < 2 * rule.stride) rule.stride = 0;
    rule.spares_every = annealing_.random.below(4) != 0;
    return rule;
  }

  /// From the rules in force; the best that it comes by are in force when it ends.
  void anneal(int64_t limit, int64_t trials) {
    double now = annealing_.cost(judge(), limit), lowest = now;
    std::vector<Rule> best = rules_;
    for (int64_t trial = 0; trial < trials && work_ < most_work_; ++trial) {
      std::array<std::pair<size_t, Rule>, 2> before;
      const size_t changes = 1 + annealing_.random.below(before.size());
      for (size_t c = 0; c < changes; ++c) {
        const size_t f = annealing_.random.below(families_.size());
        before[c] = {f, rules_[f]};
        follow(f, random_rule(families_[f]));
      }
      const double then = annealing_.cost(judge(), limit);
      if (!annealing_.accepts(now, then, static_cast<double>(trial) / static_cast<double>(trials))) {
        for (size_t c = changes; c-- > 0;) follow(before[c].first, before[c].second);
        continue;
      }
      now = then;
      if (now >= lowest) continue;
      lowest = now;
      best = rules_;
    }
    follow(best);
  }

  Frontier& frontier_;
  const Graph& graph_;
  const bool pack_;
  const int64_t most_work_;
  Simulator simulator_;
  Annealing annealing_;
  std::vector<Family> families_;
  std::vector<Rule> rules_;  ///< in force, by family
  Actions actions_;
  int64_t work_ = 0;
};

}  // namespace

void offer_families(Frontier& frontier, const Graph& graph, PlannerOptions options) {
  FamilySearch(frontier, graph, options).run(graph.baseline_bytes, kLimits);
}

void offer_families(Frontier& frontier, const Graph& graph, PlannerOptions options, int64_t limit) {
  FamilySearch(frontier, graph, options).run(limit, 1);
}

}  // namespace remat::planners

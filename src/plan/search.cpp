#include "plan/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

namespace remat::planners {
namespace {

constexpr int kRounds = 2;  ///< each begins with the best known plan
/// The first temperature, at a heat of 1, and the last, in seconds of a mean operator.
constexpr double kHot = 1, kCold = 0.05;
/// For the price of bytes above the limit, points of the Pareto front count as at least this far from the limit, as a
/// part of the bytes between baseline and limit.
constexpr double kNearest = 1.0 / 200;
/// A plan is near the limit where its peak differs from it by less than this part of the bytes between baseline and
/// limit.
constexpr double kNear = 1.0 / 16;
/// The simulation of a move ends after so many times the operators of the forward pass and of the replays before it.
constexpr int64_t kReplaysPerOperator = 2;
/// The sum of the bytes above the limit in all sections counts half, or as that of so many sections does.
constexpr int64_t kSections = 40;
constexpr int kMovesBetweenPrices = 256;
constexpr int64_t kReach = 10;         ///< the most places between the two sets of a move, in two of three moves
constexpr uint64_t kMostStrides = 3;   ///< every 2nd, 4th, 8th
constexpr int64_t kWorkOfNoMove = 10;  ///< so that a search ends where no move changes an action

}  // namespace

Search::Search(const Graph& graph, PlannerOptions options, ParetoFront& front)
    : graph_(graph), pack_(options.pack), front_(front), simulator_(graph) {
  std::map<std::tuple<std::string_view, int64_t, int32_t>, size_t> known;  // operator, bytes, which result
  double seconds = 0;
  for (const GraphOperator& op : graph.operators) {
    seconds += op.replay_seconds;
    for (const int32_t v : op.results) {
      const GraphValue& value = graph.values[v];
      if (!value.returns()) continue;
      const size_t own_class =
          known.try_emplace({op.name, value.bytes, v - op.results.front()}, classes_.size()).first->second;
      if (own_class == classes_.size()) classes_.emplace_back();
      place_in_class_.emplace_back(own_class, classes_[own_class].size());
      classes_[own_class].push_back(values_.size());
      values_.push_back(v);
    }
  }
  constexpr double kLeastSeconds = 1e-9;
  mean_seconds_ = std::max(kLeastSeconds, seconds / static_cast<double>(std::max<size_t>(1, graph.operators.size())));
}

void Search::run(int64_t limit, int64_t work, double heat) {
  if (values_.empty()) return;
  for (int round = 0; round < kRounds; ++round) anneal(limit, work / kRounds, kHot * heat);
}

/// The steepest descent on the Pareto front from points above the limit to the best within it: with this price per byte
/// no known plan above the limit has a lower cost than the best within.
double Search::seconds_per_byte(int64_t limit) const {
  const auto headroom = static_cast<double>(std::max<int64_t>(1, limit - graph_.baseline_bytes));
  const ParetoFront::Point* const within = front_.within(limit);
  const double seconds = within != nullptr ? within->seconds : 2 * front_.lowest().seconds;
  double price = mean_seconds_ / headroom;
  for (auto above = front_.points().upper_bound(limit); above != front_.points().end(); ++above) {
    const double bytes = std::max(kNearest * headroom, static_cast<double>(above->first - limit));
    price = std::max(price, (seconds - above->second.seconds) / bytes);
  }
  return price;
}

/// `hot` is the first temperature, in seconds of a mean operator.
void Search::anneal(int64_t limit, int64_t work, double hot) {
  const ParetoFront::Point* const known = front_.within(limit);
  simulator_.restart(known != nullptr ? known->actions : front_.lowest().actions, limit);
  double price = seconds_per_byte(limit);
  // The peak alone would not tell a plan that is above the limit at one moment from one that is at many.
  const auto part = static_cast<double>(std::max<int64_t>(2, simulator_.sections() / kSections));
  const auto cost = [&](const Simulation& run) {
    const auto above = static_cast<double>(std::max<int64_t>(0, run.peak_bytes - limit));
    return run.seconds + price * (above + run.excess / part) / 2;
  };
  const int64_t begin = simulator_.work();
  const auto operators = static_cast<int64_t>(graph_.operators.size());
  int64_t other_work = 0;
  double now = cost(simulator_.in_force());
  for (int64_t moves = 1;; ++moves) {
    const double progress =
        static_cast<double>(simulator_.work() - begin + other_work) / static_cast<double>(std::max<int64_t>(1, work));
    if (progress >= 1) return;
    if (moves % kMovesBetweenPrices == 0) {
      price = seconds_per_byte(limit);
      now = cost(simulator_.in_force());
    }
    if (!try_move(progress, simulator_.in_force().peak_bytes > limit)) {
      other_work += kWorkOfNoMove;
      continue;
    }
    const Simulation run = simulator_.run(kReplaysPerOperator * (operators + simulator_.in_force().replays));
    if (run.stopped) {
      simulator_.reject();
      continue;
    }
    if (is_worth_remembering(run, limit) && front_.offer(run, simulator_.actions())) {
      other_work += static_cast<int64_t>(graph_.values.size());
    }
    const double then = cost(run);
    const double temperature = mean_seconds_ * hot * std::pow(kCold / hot, progress);
    if (then <= now || random_.unit() < std::exp((now - then) / temperature)) {
      now = then;
      simulator_.accept();
    } else {
      simulator_.reject();
    }
  }
}

/// Whether a plan is the fastest within the limit, has the lowest peak of all, or is near the limit. The front does not
/// get others: a plan of a large graph takes megabytes.
bool Search::is_worth_remembering(const Simulation& run, int64_t limit) const {
  const ParetoFront::Point* const within = front_.within(limit);
  if (run.peak_bytes <= limit && (within == nullptr || run.seconds < within->seconds)) return true;
  if (run.peak_bytes < front_.lowest_peak()) return true;
  const int64_t aim = std::max(limit, front_.lowest_peak());
  const auto headroom = static_cast<double>(std::max<int64_t>(1, limit - graph_.baseline_bytes));
  return std::abs(static_cast<double>(run.peak_bytes - aim)) < kNear * headroom;
}

bool Search::try_move(double progress, bool over_limit) {
  changed_ = false;
  const Set set = random_set(progress);
  const Change change = random_change(over_limit);
  change_set(set, change);
  if (random_.below(2) == 0) {
    const bool opposite = random_.below(2) == 0;
    const Change other = change == Change::kKeep ? Change::kRecompute : Change::kKeep;
    // One draw after the other: the order in which a call's arguments are made differs between compilers.
    const Change second = opposite ? other : random_change(over_limit);
    change_set(another_set(set), second);
  }
  return changed_;
}

Search::Set Search::random_set(double progress) {
  Set set{.place = random_.below(values_.size())};
  if (random_.below(2) == 0) return set;
  const double most = std::log(static_cast<double>(values_.size())) * (1 - progress);
  set.size = 1 + static_cast<size_t>(std::exp(random_.unit() * most));
  set.of_one_class = random_.below(2) == 0;
  return set;
}

Search::Set Search::another_set(const Set& set) {
  Set other = set;
  if (random_.below(3) == 0) {
    other.place = random_.below(values_.size());
  } else {
    const auto step = static_cast<int64_t>(random_.below(2 * kReach + 1)) - kReach;
    const auto last = static_cast<int64_t>(values_.size()) - 1;
    other.place = static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(set.place) + step, 0, last));
  }
  return other;
}

/// Changes that lead back to the limit are more likely.
Search::Change Search::random_change(bool over_limit) {
  const uint64_t draw = random_.below(8);
  if (draw == 7) return Change::kPack;
  if (draw == 6) {
    const uint64_t later = random_.below(3);
    return later == 0 ? Change::kEarlier : later == 1 ? Change::kLater : Change::kEachTime;
  }
  const bool keep = draw < 3;
  if (keep == over_limit && random_.below(2) == 0) return over_limit ? Change::kRecompute : Change::kKeep;
  return keep ? Change::kKeep : Change::kRecompute;
}

void Search::change_set(const Set& set, Change change) {
  const auto [own_class, place_in_class] = place_in_class_[set.place];
  const size_t at = set.of_one_class ? place_in_class : set.place;
  const size_t count = set.of_one_class ? classes_[own_class].size() : values_.size();
  const size_t begin = at - std::min<size_t>(at, random_.below(set.size));
  const size_t end = std::min(count, begin + set.size);
  size_t stride = 1;
  if (set.size > 3 && random_.below(4) == 0) stride = size_t{2} << random_.below(kMostStrides);
  const bool others = stride > 1 && random_.below(2) == 0;  // all but every `stride`-th
  for (size_t i = begin; i < end; ++i) {
    if (((i - begin) % stride == 0) == others) continue;
    change_value(values_[set.of_one_class ? classes_[own_class][i] : i], change);
  }
}

void Search::change_value(int32_t value, Change change) {
  const Action action = action_of(value, change);
  if (action == simulator_.actions()[value]) return;
  simulator_.change(value, action);
  changed_ = true;
}

Action Search::action_of(int32_t value, Change change) const {
  const GraphValue& v = graph_.values[value];
  const Action now = simulator_.actions()[value];
  const bool recomputed = now.kind == Action::Kind::kRecompute;
  switch (change) {
    case Change::kKeep:
      return Action::kKeep;  // a value that a scope's policy drops is held from its first recompute on
    case Change::kRecompute:
      return v.dropped ? Action::kRecomputeEachTime : Action::kRecompute;
    case Change::kLater:
      if (now == Action::kRecomputeEachTime) return now;
      return recomputed ? Action::recompute(now.held_from + 1) : Action::recompute(2);
    case Change::kEarlier:
      if (now == Action::kRecomputeEachTime) return Action::recompute(2);
      return recomputed && now.held_from > 1 ? Action::recompute(now.held_from - 1) : now;
    case Change::kEachTime:
      return Action::kRecomputeEachTime;
    case Change::kPack:
      return pack_ && v.droppable && v.packed_bytes > 0 ? Action::kPack : now;
  }
  return now;
}

}  // namespace remat::planners

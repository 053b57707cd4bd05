#include "plan/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

namespace remat::planners {
namespace {

constexpr int kRounds = 2;  ///< each begins with the best that is known
/// Temperatures, in seconds of a mean operator: the first and the last.
constexpr double kHot = 1, kCold = 0.05;
/// The price of bytes above the limit looks at no nearer points of the Pareto front: a part of all bytes within the
/// limit.
constexpr double kNearest = 1.0 / 200;
/// What peaks so near the limit, as a part of all bytes within it, is worth remembering.
constexpr double kNear = 1.0 / 16;
/// A move that replays so many times the operators of the step and of what it changes takes too long to look at.
constexpr int64_t kMostReplays = 2;
constexpr int kMovesBetweenPrices = 256;
constexpr int64_t kReach = 10;         ///< places between the two sets of a move, mostly
constexpr uint64_t kMostStrides = 3;   ///< every 2nd, 4th, 8th
constexpr int64_t kWorkOfNoMove = 10;  ///< so that a search ends where nothing can be changed

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
      const size_t like =
          known.try_emplace({op.name, value.bytes, v - op.results.front()}, alike_.size()).first->second;
      if (like == alike_.size()) alike_.emplace_back();
      among_alike_.emplace_back(like, alike_[like].size());
      alike_[like].push_back(choices_.size());
      choices_.push_back(v);
    }
  }
  constexpr double kLeastSeconds = 1e-9;
  mean_seconds_ = std::max(kLeastSeconds, seconds / static_cast<double>(std::max<size_t>(1, graph.operators.size())));
}

void Search::run(int64_t limit, int64_t work) {
  if (choices_.empty()) return;
  for (int round = 0; round < kRounds; ++round) anneal(limit, work / kRounds);
}

/// The steepest way on the Pareto front from what is above the limit to within it: no point that is known to be above
/// the limit looks better than the best within.
double Search::seconds_per_byte(int64_t limit) const {
  const auto room = static_cast<double>(std::max<int64_t>(1, limit - graph_.baseline_bytes));
  const ParetoFront::Point* const within = front_.within(limit);
  const double seconds = within != nullptr ? within->seconds : 2 * front_.lowest().seconds;
  double price = mean_seconds_ / room;
  for (auto above = front_.points().upper_bound(limit); above != front_.points().end(); ++above) {
    const double bytes = std::max(kNearest * room, static_cast<double>(above->first - limit));
    price = std::max(price, (seconds - above->second.seconds) / bytes);
  }
  return price;
}

void Search::anneal(int64_t limit, int64_t work) {
  const ParetoFront::Point* const known = front_.within(limit);
  simulator_.restart(known != nullptr ? known->actions : front_.lowest().actions);
  double price = seconds_per_byte(limit);
  const auto cost = [&](const Simulation& run) {
    return run.seconds + price * static_cast<double>(std::max<int64_t>(0, run.peak_bytes - limit));
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
    const Simulation run = simulator_.run(kMostReplays * (operators + simulator_.in_force().replays));
    if (run.stopped) {
      simulator_.reject();
      continue;
    }
    if (is_worth_remembering(run, limit) && front_.offer(run, simulator_.actions())) {
      other_work += static_cast<int64_t>(graph_.values.size());
    }
    const double then = cost(run);
    const double temperature = mean_seconds_ * kHot * std::pow(kCold / kHot, progress);
    if (then <= now || random_.unit() < std::exp((now - then) / temperature)) {
      now = then;
      simulator_.accept();
    } else {
      simulator_.reject();
    }
  }
}

/// What is faster within the limit, or peaks lower than all, or near the limit: of a large graph every point takes
/// megabytes.
bool Search::is_worth_remembering(const Simulation& run, int64_t limit) const {
  const ParetoFront::Point* const within = front_.within(limit);
  if (run.peak_bytes <= limit && (within == nullptr || run.seconds < within->seconds)) return true;
  if (run.peak_bytes < front_.lowest_peak()) return true;
  const int64_t aim = std::max(limit, front_.lowest_peak());
  const auto room = static_cast<double>(std::max<int64_t>(1, limit - graph_.baseline_bytes));
  return std::abs(static_cast<double>(run.peak_bytes - aim)) < kNear * room;
}

bool Search::try_move(double progress, bool over_limit) {
  changed_ = false;
  const Set set = random_set(progress);
  const Change change = random_change(over_limit);
  change_set(set, change);
  if (random_.below(2) == 0) {
    const bool opposite = random_.below(2) == 0;
    const Change other = change == Change::kKeep ? Change::kRecompute : Change::kKeep;
    change_set(another_set(set), opposite ? other : random_change(over_limit));
  }
  return changed_;
}

Search::Set Search::random_set(double progress) {
  Set set{.place = random_.below(choices_.size())};
  if (random_.below(2) == 0) return set;
  const double most = std::log(static_cast<double>(choices_.size())) * (1 - progress);
  set.size = 1 + static_cast<size_t>(std::exp(random_.unit() * most));
  set.alike = random_.below(2) == 0;
  return set;
}

Search::Set Search::another_set(const Set& set) {
  Set other = set;
  if (random_.below(3) == 0) {
    other.place = random_.below(choices_.size());
  } else {
    const auto step = static_cast<int64_t>(random_.below(2 * kReach + 1)) - kReach;
    const auto last = static_cast<int64_t>(choices_.size()) - 1;
    other.place = static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(set.place) + step, 0, last));
  }
  return other;
}

/// Mostly what leads back to the limit.
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
  const auto [like, among] = among_alike_[set.place];
  const size_t at = set.alike ? among : set.place;
  const size_t count = set.alike ? alike_[like].size() : choices_.size();
  const size_t begin = at - std::min<size_t>(at, random_.below(set.size));
  const size_t end = std::min(count, begin + set.size);
  size_t stride = 1;
  if (set.size > 3 && random_.below(4) == 0) stride = size_t{2} << random_.below(kMostStrides);
  const bool others = stride > 1 && random_.below(2) == 0;  // all but every `stride`-th
  for (size_t i = begin; i < end; ++i) {
    if (((i - begin) % stride == 0) == others) continue;
    change_value(choices_[set.alike ? alike_[like][i] : i], change);
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
      return Action::kKeep;  // of what a policy drops: held from the first time on
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

#include "session/rank_agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include <remat/budget.h>
#include <remat/error.h>

#include "pytorch/raise.h"

namespace remat {
namespace {

int64_t to_word(double number) { return std::bit_cast<int64_t>(number); }
double to_number(int64_t word) { return std::bit_cast<double>(word); }

std::string rank_name(size_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

template <class E>
void RankAgreement::fail(const E& error) {
  in_step_ = false;
  failure_ = [error] { raise(error); };
  raise(error);
}

std::vector<std::vector<int64_t>> RankAgreement::gather(const std::vector<int64_t>& mine) {
  std::string problem;
  std::vector<std::vector<int64_t>> all;
  try {
    all = ranks_.gather(mine);
    const auto fits = [&](const auto& words) { return words.size() == mine.size(); };
    if (all.size() > static_cast<size_t>(ranks_.rank) && std::ranges::all_of(all, fits)) return all;
    problem = "Ranks::gather returned something else than what each rank has given";
  } catch (const std::exception& error) {
    problem = error.what();
    problem = problem.substr(0, problem.find('\n'));
  }
  fail(Error("[ranks] " + rank_name(static_cast<size_t>(ranks_.rank)) + " cannot agree with the others in step " +
             std::to_string(step_) + " (" + problem + "); see what became of them, and begin again from a checkpoint"));
}

std::vector<RankAgreement::Message> RankAgreement::exchange(Message mine) {
  static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) % sizeof(int64_t) == 0);
  mine.step = step_;
  mine.number = collectives_;
  std::vector<int64_t> words(sizeof(Message) / sizeof(int64_t));
  std::memcpy(words.data(), &mine, sizeof mine);
  in_step_ = false;  // unless it returns
  const auto gathered = gather(words);
  std::vector<Message> all(gathered.size());
  for (size_t rank = 0; rank < all.size(); ++rank)
    std::memcpy(static_cast<void*>(&all[rank]), gathered[rank].data(), sizeof(Message));
  in_step_ = mine.status == Status::kGoesOn && mine.point != Point::kEnd && mine.point != Point::kBudget;
  return all;
}

void RankAgreement::check(const std::vector<Message>& all) {
  const auto own = static_cast<size_t>(ranks_.rank);
  const std::string step = "step " + std::to_string(step_);
  const auto place = [&](const Message& message) REMAT_REQUIRES(mutex_) {
    const std::string of = " of step " + std::to_string(message.step);
    if (message.point == Point::kBegin) return "at the beginning" + of;
    if (message.point == Point::kEnd) return "at the end" + of;
    if (message.point == Point::kBudget) return "at a change of the budget after step " + std::to_string(message.step);
    // Another one's name is not known: only that it is not this rank's.
    const bool is_own = message.name == all[own].name;
    return "before collective " + std::to_string(message.number) + of + " (" + (is_own ? "" : "not ") + collective_ +
           ")";
  };
  // What this rank met itself is thrown by whoever met it.
  if (all[own].status != Status::kGoesOn) return;
  const Message* worst = nullptr;
  for (const Message& message : all) {
    if (message.status != Status::kRefused) continue;
    if (worst == nullptr || message.refusal.needed_bytes > worst->refusal.needed_bytes) worst = &message;
  }
  if (worst != nullptr) {
    const Refusal& refusal = worst->refusal;
    if (all[own].point == Point::kBudget) {
      fail(BudgetError("[ranks] " + rank_name(static_cast<size_t>(worst - all.data())) +
                           " cannot do with its new budget: it is " + format_exact_bytes(refusal.budget_bytes) +
                           ", and it says: give " + format_exact_bytes(refusal.needed_bytes) +
                           ", or less work per step, on all ranks; no budget below " +
                           format_exact_bytes(refusal.lower_bound_bytes) + " can work there. All ranks keep theirs",
                       refusal.budget_bytes, refusal.lower_bound_bytes, std::nullopt, refusal.needed_bytes));
    }
    fail(BudgetError("[ranks] " + rank_name(static_cast<size_t>(worst - all.data())) + " is out of memory. In " + step +
                         " its budget is " + format_exact_bytes(refusal.budget_bytes) + ", and it says: give " +
                         format_exact_bytes(refusal.needed_bytes) +
                         ", or less work per step, on all ranks; no budget below " +
                         format_exact_bytes(refusal.lower_bound_bytes) + " can work there. The step of " +
                         rank_name(own) + " ends with it; its process groups can go on to be used",
                     refusal.budget_bytes, refusal.lower_bound_bytes, std::nullopt, refusal.needed_bytes));
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Message& message = all[rank];
    if (message.status == Status::kLeft) {
      fail(Error("[ranks] " + rank_name(rank) + " left " + step +
                 " without completing it; see what it says itself. The step of " + rank_name(own) + " ends with it"));
    }
    if (message.point != all[own].point || message.step != all[own].step || message.number != all[own].number ||
        message.name != all[own].name) {
      fail(Error("[ranks] " + rank_name(own) + " is " + place(all[own]) + " while " + rank_name(rank) + " is " +
                 place(message) +
                 "; give the session a process group whose ranks run the same collectives in the same order, or none"));
    }
  }
}

int64_t RankAgreement::begin(int64_t room, bool& traces, const std::optional<Refusal>& refusal) {
  const MutexLock lock(mutex_);
  ++step_;
  collectives_ = 0;
  failure_ = nullptr;
  Message mine{.point = Point::kBegin, .room = room, .traces = traces ? 1 : 0};
  if (refusal) {
    mine.status = Status::kRefused;
    mine.refusal = *refusal;
  }
  const std::vector<Message> all = exchange(mine);
  check(all);
  for (const Message& message : all) {
    traces = traces || message.traces != 0;
    if (one_graph_) room = std::min(room, message.room);
  }
  return room;
}

void RankAgreement::change_budget(const std::optional<Refusal>& refusal) {
  const MutexLock lock(mutex_);
  Message mine{.point = Point::kBudget};
  if (refusal) {
    mine.status = Status::kRefused;
    mine.refusal = *refusal;
  }
  try {
    check(exchange(mine));
  } catch (...) {
    failure_ = nullptr;  // no step fails with it
    throw;
  }
}

void RankAgreement::before_collective(std::string_view name) {
  const MutexLock lock(mutex_);
  if (failure_) failure_();
  if (!in_step_) return;
  ++collectives_;
  collective_ = name;
  Message mine{.point = Point::kCollective};
  mine.name = static_cast<int64_t>(std::hash<std::string_view>()(name));
  check(exchange(mine));
}

RankAgreement::OwnStep RankAgreement::end(OwnStep own) {
  const MutexLock lock(mutex_);
  if (const auto failure = std::exchange(failure_, nullptr); failure && own.completed) failure();
  if (!in_step_) return own;
  Message mine{.point = Point::kEnd, .room = own.room};
  if (!own.completed) mine.status = own.refusal ? Status::kRefused : Status::kLeft;
  if (!own.completed && own.refusal) mine.refusal = *own.refusal;
  if (own.completed && own.graph != nullptr) {
    mine.fingerprint = static_cast<int64_t>(own.graph->fingerprint());
    mine.operators = static_cast<int64_t>(own.graph->operators.size());
    mine.values = static_cast<int64_t>(own.graph->values.size());
    mine.changed = own.changed ? 1 : 0;
  }
  if (own.completed && own.followed != nullptr)
    mine.followed = static_cast<int64_t>(own.followed->schedule->graph.fingerprint());
  const std::vector<Message> all = exchange(mine);
  check(all);
  if (!own.completed) return own;
  const auto all_have = [&](auto... same) {
    return std::ranges::all_of(all, [&](const Message& message) { return ((message.*same == mine.*same) && ...); });
  };
  const bool one_schedule = mine.followed != 0 && all_have(&Message::followed);
  const bool one_graph =
      mine.fingerprint != 0 && all_have(&Message::fingerprint, &Message::operators, &Message::values);
  if (mine.fingerprint != 0 || !all_have(&Message::fingerprint)) one_graph_ = one_graph;
  if (one_schedule || one_graph) {
    for (const Message& message : all) own.room = std::min(own.room, message.room);
  }
  if (one_schedule) share_times(own.followed->seconds);
  if (one_graph) {
    own.changed = std::ranges::any_of(all, [](const Message& message) { return message.changed != 0; });
    share_graph(*own.graph);
  }
  return own;
}

/// The slowest rank's times, of what contents can be packed to the most bytes, and of a tier the least room: none where
/// a rank has none.
void RankAgreement::share_graph(Graph& graph) {
  constexpr int64_t kNoTier = -1;
  const auto costs_of = [](Tier& tier) {
    FormCosts& costs = tier.costs;
    return std::array{&costs.out.compute, &costs.out.copy, &costs.in.compute, &costs.in.copy, &tier.copy_seconds};
  };
  Tier tier = graph.tier.value_or(Tier());
  std::vector<int64_t> mine = {to_word(graph.step_seconds), graph.tier ? tier.bytes : kNoTier};
  for (const double* const cost : costs_of(tier)) mine.push_back(to_word(*cost));
  for (const GraphOperator& op : graph.operators) {
    mine.push_back(to_word(op.seconds));
    mine.push_back(to_word(op.replay_seconds));
  }
  for (const GraphValue& value : graph.values) mine.push_back(value.packed_bytes);
  const std::vector<std::vector<int64_t>> all = gather(mine);
  for (const std::vector<int64_t>& words : all) {
    auto word = words.begin();
    const auto take_longest = [&](double& seconds) { seconds = std::max(seconds, to_number(*word++)); };
    take_longest(graph.step_seconds);
    const int64_t tier_bytes = *word++;
    if (tier_bytes == kNoTier) graph.tier.reset();
    tier.bytes = std::min(tier.bytes, tier_bytes);
    for (double* const cost : costs_of(tier)) take_longest(*cost);
    for (GraphOperator& op : graph.operators) {
      take_longest(op.seconds);
      take_longest(op.replay_seconds);
    }
    for (GraphValue& value : graph.values) {
      const int64_t bytes = *word++;  // 0: they cannot be packed there
      value.packed_bytes = bytes == 0 || value.packed_bytes == 0 ? 0 : std::max(value.packed_bytes, bytes);
    }
  }
  if (graph.tier) graph.tier = tier;
}

/// The slowest rank's.
void RankAgreement::share_times(std::vector<double>& seconds) {
  std::vector<int64_t> mine(seconds.size());
  std::ranges::transform(seconds, mine.begin(), to_word);
  for (const std::vector<int64_t>& words : gather(mine)) {
    for (size_t o = 0; o < seconds.size(); ++o) seconds[o] = std::max(seconds[o], to_number(words[o]));
  }
}

}  // namespace remat

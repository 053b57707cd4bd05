// src/session/rank_agreement.h -- what the ranks of a session tell each other at fixed points of a step.
//
// The points are the beginning of a step, each collective of the model's in it, and its end; between steps, a change of
// the budget. What one rank alone met
// (its memory ran short) would leave the others waiting for it in their next collective: that is where they are told,
// and it has not begun then, so that the model's process groups can go on to be used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remat/graph.h>
#include <remat/ranks.h>

#include "session/plan_follower.h"
#include "util/mutex.h"

namespace remat {

class RankAgreement {
 public:
  explicit RankAgreement(Ranks ranks) : ranks_(std::move(ranks)) {}

  /// Why a rank's step cannot go on.
  struct Refusal {
    int64_t budget_bytes = 0, lower_bound_bytes = 0, needed_bytes = 0;
  };

  /// How a step went on this rank, and what it has taught.
  struct OwnStep {
    bool completed = false;  ///< else it failed, for lack of memory if there is a `refusal`
    std::optional<Refusal> refusal = {};
    Graph* graph = nullptr;             ///< null: it was not traced
    FollowedTimes* followed = nullptr;  ///< null: it has not followed a schedule with operators missing or added
    bool changed = false;               ///< it did other things to memory than the step of the same graph before
    int64_t room = 0;                   ///< bytes above the baseline
  };

  // Each of the following throws BudgetError if another rank was refused memory, and Error if one left its step for
  // another reason or is at another point. After that, and where `refusal` is given, no more is exchanged in this step.

  /// A step begins, with `room` bytes above its baseline. Returns the least of all ranks' where the last step was the
  /// same on all of them. `traces`: whether this rank wants to write its step down; true afterwards where any does.
  int64_t begin(int64_t room, bool& traces, const std::optional<Refusal>& refusal);
  /// Between steps, the session's budget is to become another. Throws nothing where `refusal` is this rank's own.
  void change_budget(const std::optional<Refusal>& refusal);
  /// The collective `name` is about to begin. Called on the threads that work for the step. Once it has thrown, it
  /// throws the same again for every other in the step, and so does end().
  void before_collective(std::string_view name);
  /// The step ends. Returns what to plan with: where all ranks have recorded the same graph, the longest times of all
  /// ranks in it, the least room, and whether memory changed on any; where all have followed a schedule for the same
  /// graph, the longest times of that and the least room; else what is this rank's own.
  OwnStep end(OwnStep own);

 private:
  enum class Point : int64_t { kBegin, kCollective, kEnd, kBudget };
  enum class Status : int64_t { kGoesOn, kRefused, kLeft };
  /// As it is sent.
  struct Message {
    Point point = Point::kBegin;
    int64_t step = 0;
    int64_t number = 0;  ///< of collectives in the step
    int64_t name = 0;    ///< of the collective, hashed
    Status status = Status::kGoesOn;
    Refusal refusal = {};
    int64_t room = 0;
    int64_t traces = 0;
    int64_t fingerprint = 0;  ///< of the graph; 0: there is none
    int64_t operators = 0, values = 0;
    int64_t changed = 0;   ///< 1: the graph's memory is not that of the step before
    int64_t followed = 0;  ///< fingerprint of the graph that the step's times are by operator of; 0: there are none
  };

  std::vector<std::vector<int64_t>> gather(const std::vector<int64_t>& mine) REMAT_REQUIRES(mutex_);
  std::vector<Message> exchange(Message mine) REMAT_REQUIRES(mutex_);
  void check(const std::vector<Message>& all) REMAT_REQUIRES(mutex_);
  template <class E>
  [[noreturn]] void fail(const E& error) REMAT_REQUIRES(mutex_);
  void share_graph(Graph& graph) REMAT_REQUIRES(mutex_);
  void share_times(std::vector<double>& seconds) REMAT_REQUIRES(mutex_);

  Ranks ranks_;
  Mutex mutex_;
  int64_t step_ REMAT_GUARDED_BY(mutex_) =
      0;  ///< counted from 1: the same on all ranks, since each begins it together with the others
  int64_t collectives_ REMAT_GUARDED_BY(mutex_) = 0;        ///< so far in the step
  bool in_step_ REMAT_GUARDED_BY(mutex_) = false;           ///< and nothing has gone wrong on any rank
  std::string collective_ REMAT_GUARDED_BY(mutex_);         ///< the last one's name
  std::function<void()> failure_ REMAT_GUARDED_BY(mutex_);  ///< throws what the step has failed with on another rank
  bool one_graph_ REMAT_GUARDED_BY(mutex_) = false;         ///< all ranks have recorded the same one at last
};

}  // namespace remat

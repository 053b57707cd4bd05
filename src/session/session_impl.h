// src/session/session_impl.h -- what a session and its steps are made of.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remat/extension.h>
#include <remat/session.h>

#include "memory/fork.h"
#include "memory/ledger.h"
#include "observe/special_kernels.h"
#include "observe/tapes.h"
#include "operators/draw_section.h"
#include "session/move_tier.h"
#include "session/online_eviction.h"
#include "session/pool_state.h"
#include "session/pressure_budget.h"
#include "session/rank_agreement.h"
#include "session/step_planner.h"
#include "tape/tape.h"
#include "tape/trace.h"

namespace remat {

struct Session::Impl {
  explicit Impl(SessionOptions given)
      : options(std::move(given)),
        eviction(memory::Ledger::of(options.device)),
        planner(options.planner, options.pack, options.plan),
        special_kernels(install_special_kernels(options.device.type(), options.ranks.has_value())) {
    use(options.budget);
    if (options.disk) tier = disk_tier(*options.disk);
    if (options.host) tier = host_tier(options.device, options.host->byte_count());
    if (options.ranks) ranks = std::make_shared<RankAgreement>(*options.ranks);
  }

  SessionOptions options;
  OnlineEviction eviction;
  StepPlanner planner;
  std::optional<PressureBudget> memory_followed;  ///< empty: the budget is another than Budget::pressure()
  PoolDemands company;                            ///< see PoolStep; of the last step
  bool asks_for_all = false;     ///< the next step of a pool is to run alone: one beside others was refused
  std::string budget_note;       ///< for the next step's report: what set_budget() has changed
  std::optional<MoveTier> tier;  ///< empty: values are not moved
  bool warned_of_tier = false;
  std::vector<std::shared_ptr<const void>> special_kernels;  ///< see install_special_operators()
  std::shared_ptr<RankAgreement> ranks;                      ///< null: the session is for itself
  std::exception_ptr failure;  ///< another rank's or the device's, met as a step ended: to be thrown
  StepReport report;
  std::shared_ptr<const Schedule> followed;  ///< by the last step that followed one to its end
  int64_t steps = 0;
  std::optional<int64_t> plain_activation_peak;  ///< the largest of the steps that completed
  std::vector<int64_t> largest_results;          ///< of that step, where no graphs are known: see PlanFollower
  /// What the records of a step held that plain does not, the most so far: generator states, and of leaves that plain
  /// frees earlier (scalars, mostly) up to a 64th of the activations. A budget of all of plain leaves room for it.
  int64_t room_beyond_plain = 0;
  struct Smallest {
    int64_t activation_peak = 0, gradients = 0;
  };
  std::optional<Smallest> smallest_step;  ///< of the same: its measured peak, and its gradients when it began
  std::atomic<bool> in_step = false;
  /// Between steps too: an operator of another thread that began before the watch is not seen.
  std::shared_ptr<const void> draws_watch = watch_draws();
  int forks = remat::forks();

  void throw_failure() {
    if (auto met = std::exchange(failure, nullptr)) std::rethrow_exception(met);
  }

  /// In a child of the process that used it last.
  void after_fork() {
    forks = remat::forks();
    in_step = false;
    ranks.reset();  // the child is none of them
    eviction.after_fork();
    if (options.disk) tier = disk_tier(*options.disk);  // the file is the parent's
  }

  static constexpr int64_t kPartOfAdopted = 16;
  /// Of the last step: bytes alive when it began, and those of older tensors that it was the first to meet.
  struct {
    int64_t baseline = 0, adopted = 0;
  } first_seen;
  /// Of the parameters that the last step read: the gradients that they had when it ended, and the bytes of those that
  /// they had when it began. (Not the parameters themselves: a weak reference to a tensor keeps
  /// torch.utils.swap_tensors from it.)
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> gradients;
  int64_t gradients_at_begin = 0;
  int64_t gradients_before = 0;  ///< bytes: gradients_now() when the step in progress began
  /// Bytes of gradients that were alive when the step of `tape` began. Those that it freed before it read their
  /// parameters are none that the record has seen.
  int64_t gradients_at_begin_of(const Tape& tape) const {
    return std::max(tape.counts.gradient_bytes, gradients_before);
  }
  std::vector<LeafRead> leaf_reads;  ///< by the operators of the planner's graph
  bool empties_leaves = true;        ///< the last step that completed did: Residency::expect_emptied
  int64_t gradients_now() const;
  /// Of `then` bytes of gradients those that backward makes again: they were freed since.
  int64_t new_gradients(int64_t then) const { return std::max<int64_t>(0, then - gradients_now()); }
  void note_gradients_of(Tape& tape);

  /// What a step that begins with `baseline` will meet. Inputs that come from elsewhere (NumPy, a DataLoader's workers)
  /// are new in every step; tensors older than the session count from their first step on, and the baseline has risen
  /// by them. By a part of them it may rise for other reasons: losses that are kept.
  int64_t adopted_by(int64_t baseline) const {
    const bool as_before = std::abs(baseline - first_seen.baseline) <= first_seen.adopted / kPartOfAdopted;
    return as_before ? first_seen.adopted : 0;
  }

  /// What earlier steps tell about one that began with `baseline` bytes alive, of which `tape` has what was recorded.
  /// (Where an earlier step made gradients that are there now, they count twice.)
  OnlineEviction::Known known_of(const Tape* tape, int64_t request, int64_t baseline) const;

  /// Is a step known that began like the one in progress, with no smaller sizes? Else that may take more than any
  /// known. `request`: bytes of the allocation in progress, `results`: see PlanFollower, `plain`:
  /// the peak above the baseline that the step has had in plain so far.
  bool covers(const Tape& tape, int64_t request, const std::vector<int64_t>& results, int64_t plain) const;

  /// Bytes that a step without a plan adds to those alive before it, where it drops as much as it can: as predicted on
  /// the graph of an earlier one.
  int64_t least_without_plan(const Graph& graph) const;

  /// The limit for a step that begins with `baseline` bytes alive, never above the device's. (A share of what is not
  /// known yet is for the policy to follow.)
  int64_t limit_for(int64_t baseline) const;

  /// Is the budget a share, whose limit rises with what plain takes?
  bool follows_plain() const { return options.budget.kind() == Budget::Kind::kPercent; }
  /// Of a step whose limit may rise. `limit`: limit_for() what it will meet.
  OnlineEviction::Share share(int64_t baseline, int64_t limit) const;

  /// Above a share. With nothing evicted, the records hold that too: where all is kept, nothing else could make room.
  int64_t beyond_share() const { return options.budget.share() == 100 ? room_beyond_plain : 0; }

  /// Tells the eviction of a step that is about to begin, whose peaks are measured already.
  void begin_eviction(Step::Impl& step, int64_t limit, int64_t expected_baseline);

  /// Bytes to plan for: `room`, or the least of all ranks'. Throws BudgetError where `baseline` passes the limit, here
  /// or on another rank. `traces`: see RankAgreement::begin().
  int64_t agree_on_room(int64_t baseline, int64_t limit, int64_t room, bool& traces);
  /// The limit is in force from now on: throws BudgetError where more is alive, and tells the other ranks.
  void check_beginning(int64_t limit, int64_t room);

  /// For refusals, where no plan for the step that was recorded last fits: what it would take at least. (Eviction may
  /// go lower, where values are asked for more than once.)
  std::string known_need(int64_t baseline, int64_t limit) const;

  /// What the user asked for; nothing while a percentage has no base.
  std::optional<int64_t> wanted_for(int64_t baseline) const;

  /// Makes `budget` that of the steps to come.
  void use(const Budget& budget);
  /// What Session::set_budget() does, once no step can begin meanwhile.
  void change_budget(const Budget& budget);
  /// What the budget is too small for, of what is known; empty where it is not, or that is not known. The message is
  /// for whoever has asked for it.
  struct TooSmall {
    RankAgreement::Refusal refusal;
    std::string message = {};
    std::optional<double> percent = {};
  };
  std::optional<TooSmall> budget_problem();
  /// Bytes that are alive when the next step begins, as far as can be told between steps.
  int64_t next_baseline() const;
  /// Has a budget that follows the memory that is left look at it, and writes into `report` what it found and what has
  /// become of the budget.
  void follow_memory(StepReport& report);
  /// Where the budget is a pool's: waits until `step`, which has not begun, may.
  void ask_pool(Step::Impl& step);
  /// The limit that follow_memory() would find now.
  int64_t limit_by_memory() const;
};

/// A session's one step in progress, which another thread must not begin a second beside.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& taken,
                const char* problem =
                    "[session] a step of this session is in progress on another thread; end it first, "
                    "or give each thread a session of its own")
      : taken_(taken) {
    if (taken_.exchange(true)) throw Error(problem);
  }
  ~Turn() {
    if (forks_ == forks()) taken_ = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& taken_;
  const int forks_ = forks();
};

struct Step::Impl {
  std::shared_ptr<Session::Impl> session;
  std::optional<Turn> turn;
  std::shared_ptr<Tape> tape = Tapes::all().make();
  std::optional<PoolStep> pool;  ///< destroyed after the limit, and before the turn
  std::optional<memory::MeasuredStep> measured;
  std::unique_ptr<memory::Ledger::Enforcement> enforcement;  ///< destroyed first: it may ask what is measured
  std::unique_ptr<Trace> trace;
  std::shared_ptr<PlanFollower> follower = std::make_shared<PlanFollower>();
  std::optional<FollowedTimes> followed_times;  ///< at the end
  StepReport report;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  int exceptions = std::uncaught_exceptions();
  std::atomic<bool> ended = false;
  std::optional<int64_t> pool_room;      ///< bytes to plan for, where the pool grants some beside other steps
  bool limit_rises = false;              ///< it may: it is a share of what plain takes, or gives way
  int64_t first_limit = 0;               ///< of one that may rise: before it has
  int64_t plain_peak_without_state = 0;  ///< at the end: see Ledger
  std::string warning;                   ///< at the end: what its user is to be warned of
  const int forks = remat::forks();
  const int64_t compilations = extension::compilations();

  // Of the beginning, in this order.
  /// Takes the session's turn, and sets its record up.
  void set_up(const std::shared_ptr<Session::Impl>& of);
  /// Follows what the session's planner has for `room` bytes above the baseline. Of all of plain's memory (`is_all`)
  /// nothing has to be dropped: what a record holds beyond that goes when it is in the way.
  void follow_plans(int64_t room, bool is_all);
  /// From now on the limit holds.
  void put_in_force(int64_t limit, int64_t room);
  /// Writes its graph down.
  void begin_trace();

  void end(bool completed);
  // Of the end, in this order.
  std::optional<Graph> stop(bool completed);
  std::optional<Graph> take_graph();
  void report_plan(const Graph* traced);
  void resolve();
  void stop_recording();
  void report_measurements();
  void learn_peaks();
  void learn_room_beyond_plain();
  /// Returns what to plan with: this rank's, or what all have agreed on.
  RankAgreement::OwnStep tell_ranks(Graph* graph);
  /// Bytes that the budget leaves above the baseline.
  int64_t room() const;

  int64_t live_values() const {
    const std::lock_guard lock(tape->mutex);
    return tape->live_values();
  }
  /// Has code been compiled since it began? Compilers hold tensors for as long as they work.
  bool compiled() const { return compilations != extension::compilations(); }
  /// This is a copy of the step, in a child of its process.
  bool is_parents() const { return forks != remat::forks(); }
};

}  // namespace remat

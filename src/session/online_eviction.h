// src/session/online_eviction.h -- what a session does when memory runs short of its limit: it evicts, lets the limit
// rise where that is a share of what is not known yet, or refuses and says what would do.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/ledger.h"
#include "session/operator_times.h"
#include "session/rank_agreement.h"
#include "tape/tape.h"
#include "util/mutex.h"

namespace remat {

class PoolStep;

class OnlineEviction final : public memory::Reclaimer {
 public:
  explicit OnlineEviction(memory::Ledger& ledger) : ledger_(ledger) {}

  /// What earlier steps of the session tell about the one in progress, for the numbers in refusals.
  struct Known {
    std::optional<int64_t> smallest;  ///< bytes that the smallest completed step took
    int64_t for_times = 0;            ///< bytes that one like it may take more, depending on the times that it measures
    std::optional<int64_t> predicted;  ///< bytes that the step takes, if it goes on like an earlier one
    bool larger = false;               ///< the step runs the same operators as earlier ones, with more bytes
    bool last = false;                 ///< the step that was recorded last ran the same operators
    std::string
        need;  ///< what one like that needs at least, in words; empty where that is not known, or there is a plan
  };
  /// A step that begins.
  struct StepFacts {
    std::string name;                                ///< what messages call it
    int64_t baseline = 0;                            ///< bytes alive
    const memory::MeasuredStep* measured = nullptr;  ///< its peaks; destroyed after its limit
    bool of_device = false;                          ///< the limit is the device's, not a budget's
    const PoolStep* pool = nullptr;                  ///< where the limit is a pool's; destroyed after it
    bool beside_others = false;  ///< steps of other sessions are in progress: the limit may be the smallest of theirs
    /// Called with the record of the step (null where it has not begun, or cannot be locked) and the bytes of the
    /// allocation that is refused.
    std::function<Known(const Tape*, int64_t)> known = {};
    /// True if a step is known that began like the one in progress, with no smaller sizes. Else this one may take more
    /// than any that is known. Called in the same way.
    std::function<bool(const Tape&, int64_t)> is_covered = {};
    /// True if a step that goes on like the one in progress fits in plain with the given bytes above its baseline: what
    /// is missing then is what the record holds. Called with the step locked.
    std::function<bool(const Tape&, int64_t)> fits_in_plain = {};
  };
  /// A step begins, whose limit is not in force yet: from now on it is what refusals are about.
  void begin(StepFacts facts);
  /// Makes the values of `tape`, the record of the step in force, candidates for eviction, for as long as the tape
  /// lives.
  void watch(const std::shared_ptr<Tape>& tape);

  /// What the limit of a step is made of that may rise: its budget is a share of what plain takes, or gives way. Bytes,
  /// but for the percentage.
  struct Share {
    double percent = 0;              ///< 0: the budget is none
    bool gives_way = false;          ///< the limit rises wherever nothing more can be evicted: Budget::pressure()
    std::optional<int64_t> of = {};  ///< the largest activation peak of the steps so far; empty before the first
    int64_t beyond = 0;              ///< what the records may hold on top
    int64_t limit = 0;               ///< the limit to begin with
    int64_t expected_older = 0;      ///< the part of it for tensors that existed before the account
    int64_t most = 0;                ///< what the limit may rise to: the device's, until another budget holds too
    bool most_of_device = true;
  };
  /// Keeps what is alive above the baseline under the share of what plain would have taken by now, or of what the
  /// largest step so far took: in the end it is under that share of plain's peak. The limit rises beyond it where not
  /// enough can be evicted and the step may take more in plain than those before. Of one that gives way, the limit
  /// rises to what the step needs. Returns the limit to begin with.
  int64_t let_rise(const Share& share);
  /// Keeps the limit of the step in force from rising above `most` bytes, and adds `name` to what messages call the
  /// step. Returns the limit from now on.
  int64_t lower_limit(int64_t most, const std::string& name);
  /// Returns the limit of the step in force, which may rise, or the share of plain's peak if that is more.
  int64_t limit_in_the_end();
  /// Returns the last refusal in the step in force; empty while there was none.
  std::optional<RankAgreement::Refusal> refusal();

  /// Remembers the operator times of a step that is over and had `room` bytes above its baseline. Later steps that
  /// begin like it choose what to evict by these times, so that they do again what fitted: where the step completed
  /// with little left to evict, or was refused when it chose by its own times.
  void learn_times(const Tape& tape, bool completed, int64_t room);

  /// Forgets the tapes, in a child after a fork: they are those of the parent's steps.
  void after_fork();

  bool reclaim(int64_t bytes) override;
  bool reclaim_block(int64_t bytes) override;
  bool may_reserve_more() override;
  bool refuses() override;
  void meets_older(int64_t bytes) override;
  [[noreturn]] void refuse(int64_t needed, int64_t request, int64_t limit) override;

 private:
  std::vector<std::shared_ptr<Tape>> living_tapes();
  std::shared_ptr<Tape> step_in_progress();
  /// Returns the bytes that plain would have alive with `request` more for the allocation in progress.
  int64_t plain_with(int64_t request) const;
  int64_t lower_bound(int64_t request);
  int64_t needed_bytes(int64_t needed, int64_t limit, const Tape* tape, const std::optional<int64_t>& predicted) const;
  int64_t request_of(int64_t missing) const REMAT_REQUIRES(mutex_);
  int64_t share_of(int64_t plain) const REMAT_REQUIRES(mutex_);
  int64_t raise_to_share(int64_t missing);
  bool has_share() const REMAT_REQUIRES(mutex_) { return share_.percent > 0 || share_.gives_way; }
  bool may_rise();
  bool may_outgrow(int64_t request);
  bool release_records(int64_t bytes);
  bool give_way(int64_t missing);
  bool evict_any(int64_t bytes, const std::function<bool()>& gives_way);
  std::shared_ptr<const OperatorTimes> times_for(const std::shared_ptr<Tape>& tape);
  void note_left(int64_t bytes);
  void raise_limit(int64_t limit) REMAT_REQUIRES(mutex_);

  memory::Ledger& ledger_;
  StepFacts facts_;  ///< but for the name constant while the limit is in force
  Mutex mutex_;
  std::vector<std::weak_ptr<Tape>> tapes_ REMAT_GUARDED_BY(mutex_);
  std::weak_ptr<Tape> current_ REMAT_GUARDED_BY(mutex_);  ///< the record of the step in progress
  std::string step_name_ REMAT_GUARDED_BY(mutex_);
  std::optional<RankAgreement::Refusal> refusal_ REMAT_GUARDED_BY(mutex_);
  int64_t least_left_ REMAT_GUARDED_BY(mutex_) = INT64_MAX;  ///< bytes left to evict in the step in force: see Evicted
  bool by_earlier_times_ REMAT_GUARDED_BY(mutex_) = false;
  /// The times of steps that completed and were short of memory, the last first.
  std::vector<std::shared_ptr<const OperatorTimes>> earlier_times_ REMAT_GUARDED_BY(mutex_);
  /// For a step whose limit may rise: `limit` is the present one, `expected_older` what is still to come of it.
  Share share_ REMAT_GUARDED_BY(mutex_);
  int64_t base_ REMAT_GUARDED_BY(mutex_) = 0;  ///< alive when the step began, with what was older than the account
};

}  // namespace remat

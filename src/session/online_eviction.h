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

class OnlineEviction final : public memory::Reclaimer {
 public:
  explicit OnlineEviction(memory::Ledger& ledger) : ledger_(ledger) {}

  /// `tape` is that of the step in force. Its values are candidates from now on, for as long as the tape lives.
  void watch(const std::shared_ptr<Tape>& tape);

  /// Of a step whose budget is a share of what plain takes, all in bytes but the percentage.
  struct Share {
    double percent = 0;          ///< 0: the budget is none
    std::optional<int64_t> of;   ///< the largest activation peak of the steps so far; empty before the first
    int64_t beyond = 0;          ///< that the records may hold on top
    int64_t limit = 0;           ///< to begin with
    int64_t expected_older = 0;  ///< in that limit, for tensors that are older than the account
    int64_t most = 0;            ///< that the limit may rise to: the device's, until another budget holds too
    bool most_of_device = true;
  };
  /// From now on what is alive above the baseline is kept under the share of what plain would have taken by then, or of
  /// what the largest step so far took, so that it is under the same share of plain's peak in the end. Where not enough
  /// can be evicted, and the step may take more in plain than those before, the limit rises all the same. Returns the
  /// limit to begin with.
  int64_t follow_plain(const Share& share);
  /// The limit does not rise.
  void hold_still();
  /// A step is in force from now on: what messages call it.
  void name_step(const std::string& name);
  /// The limit of the step in force may no longer rise above `most` bytes. `name` is added to what messages call it.
  /// Returns the limit from now on.
  int64_t lower_limit(int64_t most, const std::string& name);
  /// Of the step in force, which follows plain: its limit, or the share of plain's peak if that is more.
  int64_t limit_in_the_end();
  /// The last one of the step in force; empty while there was none.
  std::optional<RankAgreement::Refusal> refusal();

  /// The step of `tape`, which had `room` bytes above its baseline, is over. What a session has done within a budget it
  /// can do again: where a step completed with little left to evict, later ones that begin like it choose by its times.
  /// So they do where one was refused that chose by its own.
  void learn_times(const Tape& tape, bool completed, int64_t room);

  /// In a child of the process that the session was made in: forgets the tapes, which are those of the parent's steps.
  void after_fork();

  bool reclaim(int64_t bytes) override;
  bool reclaim_block(int64_t bytes) override;
  bool may_reserve_more() override;
  bool refuses() override;
  void meets_older(int64_t bytes) override;
  [[noreturn]] void refuse(int64_t needed, int64_t request, int64_t limit) override;

  /// Bytes alive when the step began.
  int64_t baseline = 0;
  /// Of the step in force; destroyed after its limit.
  const memory::MeasuredStep* measured = nullptr;
  /// What earlier steps of the session tell about the one in progress, for refusals: asked with what of it is recorded,
  /// or with null where it has not begun.
  struct Known {
    std::optional<int64_t> smallest;   ///< bytes that the smallest of those that completed took
    int64_t for_times = 0;             ///< bytes that one like it may take more, by the times that it measures
    std::optional<int64_t> predicted;  ///< bytes that the step takes, if it goes on like one of them
    bool larger = false;               ///< it runs the same operators as they did, with more bytes
    bool last = false;                 ///< the last of those that were recorded did
  };
  /// Asked with the bytes of the allocation that is refused, and the step, if that can be locked.
  std::function<Known(const Tape*, int64_t)> known;
  /// Is a step known that began like the one in progress, with no smaller sizes? Asked in the same way. Else it may
  /// take more than any that is known.
  std::function<bool(const Tape&, int64_t)> is_covered;
  /// Does a step that goes on like the one in progress fit in plain with so many bytes above its baseline? Then what is
  /// missing is what its record holds. Asked with the step locked.
  std::function<bool(const Tape&, int64_t)> fits_in_plain;
  /// The limit is the device's, not a budget's.
  bool of_device = false;
  /// Were steps of other sessions in progress when the step began? Then that may be the smallest of their limits.
  bool beside_others = false;
  /// What a step like the last that was recorded needs, for refusals; empty where that is not known, or there is a
  /// plan.
  std::string known_need;

 private:
  std::vector<std::shared_ptr<Tape>> living_tapes();
  std::shared_ptr<Tape> step_in_progress();
  /// Bytes that plain would have alive with `request` more for the allocation in progress.
  int64_t plain_with(int64_t request) const;
  int64_t lower_bound(int64_t request);
  int64_t needed_bytes(int64_t needed, int64_t limit, const Tape* tape, const std::optional<int64_t>& predicted) const;
  int64_t request_of(int64_t missing) const REMAT_REQUIRES(mutex_);
  int64_t share_of(int64_t plain) const REMAT_REQUIRES(mutex_);
  int64_t raise_to_share(int64_t missing);
  bool may_rise();
  bool may_outgrow(int64_t request);
  bool release_records(int64_t bytes);
  bool give_way(int64_t missing);
  bool evict_any(int64_t bytes, const std::function<bool()>& gives_way);
  std::shared_ptr<const OperatorTimes> times_for(const std::shared_ptr<Tape>& tape);
  void note_left(int64_t bytes);
  void raise_limit(int64_t limit) REMAT_REQUIRES(mutex_);

  memory::Ledger& ledger_;
  Mutex mutex_;
  std::vector<std::weak_ptr<Tape>> tapes_ REMAT_GUARDED_BY(mutex_);
  std::weak_ptr<Tape> current_ REMAT_GUARDED_BY(mutex_);  ///< of the step in progress
  std::string step_name_ REMAT_GUARDED_BY(mutex_);
  std::optional<RankAgreement::Refusal> refusal_ REMAT_GUARDED_BY(mutex_);
  int64_t least_left_ REMAT_GUARDED_BY(mutex_) = INT64_MAX;  ///< bytes, of the step in force: see Evicted
  bool by_earlier_times_ REMAT_GUARDED_BY(mutex_) = false;
  /// Of steps that completed and were short of memory, the last first.
  std::vector<std::shared_ptr<const OperatorTimes>> earlier_times_ REMAT_GUARDED_BY(mutex_);
  /// Of a step that follows plain: `limit` is what it is now, and of `expected_older` what is still to come.
  Share share_ REMAT_GUARDED_BY(mutex_);
  int64_t base_ REMAT_GUARDED_BY(mutex_) = 0;  ///< alive when the step began, with what was older than the account
};

}  // namespace remat

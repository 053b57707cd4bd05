#include "session/online_eviction.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "device/device.h"
#include "observe/recorder.h"
#include "observe/step_extent.h"
#include "session/eviction.h"
#include "session/pool_state.h"

namespace remat {
namespace {

/// Replays per recorded operator after which nothing more is evicted, so that the step is refused: it would crawl.
constexpr int64_t kMostReplays = 20;

/// Of a step's room: where less is left to evict, other choices might not complete.
constexpr int64_t kPartLeft = 8;
constexpr size_t kMostTimes = 8;  ///< kinds of steps that a session chooses in by the times of earlier ones

}  // namespace

void OnlineEviction::begin(StepFacts facts) {
  const MutexLock lock(mutex_);
  step_name_ = std::exchange(facts.name, "");
  facts_ = std::move(facts);
  refusal_.reset();
  share_ = {};
}

void OnlineEviction::watch(const std::shared_ptr<Tape>& tape) {
  const MutexLock lock(mutex_);
  std::erase_if(tapes_, [](const auto& each) { return each.expired(); });
  tapes_.push_back(tape);
  current_ = tape;
  least_left_ = INT64_MAX;
}

std::shared_ptr<const OperatorTimes> OnlineEviction::times_for(const std::shared_ptr<Tape>& tape) {
  const MutexLock lock(mutex_);
  if (!by_earlier_times_ || current_.lock() != tape) return nullptr;
  for (const auto& times : earlier_times_) {
    if (times->begins_like(tape->program)) return times;
  }
  return nullptr;
}

void OnlineEviction::note_left(int64_t bytes) {
  const MutexLock lock(mutex_);
  least_left_ = std::min(least_left_, bytes);
}

void OnlineEviction::learn_times(const Tape& tape, bool completed, int64_t room) {
  const MutexLock lock(mutex_);
  if (!completed) {
    if (refusal_) by_earlier_times_ = !by_earlier_times_ && !earlier_times_.empty();
    return;
  }
  if (least_left_ == INT64_MAX) return;                                     // it was not short of memory
  if (!tape.times && device::may_have_streams(tape.values.device)) return;  // it knows those of the launches
  const auto same = std::ranges::find_if(earlier_times_, [&](const auto& times) {
    return times->size() == tape.program.size() && times->begins_like(tape.program);
  });
  if (same == earlier_times_.end()) {
    if (earlier_times_.size() == kMostTimes) earlier_times_.pop_back();
    earlier_times_.insert(earlier_times_.begin(), std::make_shared<const OperatorTimes>(tape.program));
  } else if (!by_earlier_times_) {
    *same = std::make_shared<const OperatorTimes>(tape.program);
  }
  by_earlier_times_ = by_earlier_times_ || tape.times || least_left_ < room / kPartLeft;
}

/// Unchecked: the process has one thread.
void OnlineEviction::after_fork() REMAT_UNCHECKED {
  new (&mutex_) Mutex;  // locked, maybe, by a thread that is not there
  tapes_.clear();
  current_.reset();
}

std::vector<std::shared_ptr<Tape>> OnlineEviction::living_tapes() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Tape>> tapes;
  for (const auto& each : tapes_) {
    if (auto tape = each.lock()) tapes.push_back(std::move(tape));
  }
  return tapes;
}

int64_t OnlineEviction::let_rise(const Share& share) {
  const MutexLock lock(mutex_);
  share_ = share;
  share_.limit = std::max<int64_t>(1, std::min(share.limit, share.most));
  base_ = facts_.baseline;
  return share_.limit;
}

int64_t OnlineEviction::lower_limit(int64_t most, const std::string& name) {
  const MutexLock lock(mutex_);
  step_name_ += name;
  if (!has_share()) return most;
  share_.most_of_device = share_.most_of_device && share_.most <= most;
  share_.most = std::min(share_.most, most);
  share_.limit = std::min(share_.limit, share_.most);
  return share_.limit;
}

int64_t OnlineEviction::limit_in_the_end() {
  const MutexLock lock(mutex_);
  if (share_.gives_way) return share_.limit;
  return std::max(share_.limit, std::min(share_of(facts_.measured->plain_peak()), share_.most));
}

std::optional<RankAgreement::Refusal> OnlineEviction::refusal() {
  const MutexLock lock(mutex_);
  return refusal_;
}

void OnlineEviction::raise_limit(int64_t limit) {
  limit = std::min(limit, share_.most);
  if (limit <= share_.limit) return;
  share_.limit = limit;
  ledger_.set_limit(*this, limit);
}

void OnlineEviction::meets_older(int64_t bytes) {
  const MutexLock lock(mutex_);
  base_ += bytes;
  const int64_t expected = std::min(bytes, share_.expected_older);
  share_.expected_older -= expected;
  if (share_.percent > 0) raise_limit(share_.limit + bytes - expected);
}

/// Of the allocation in progress, for which `missing` bytes are.
int64_t OnlineEviction::request_of(int64_t missing) const { return missing + share_.limit - ledger_.current(); }

/// The limit of a step that takes so much in plain.
int64_t OnlineEviction::share_of(int64_t plain) const {
  return base_ + share_.beyond + static_cast<int64_t>(static_cast<double>(plain - base_) * share_.percent / 100);
}

/// Returns the bytes that are missing still.
int64_t OnlineEviction::raise_to_share(int64_t missing) {
  const MutexLock lock(mutex_);
  if (share_.percent == 0 || ledger_.enforced_limit() < share_.limit) return missing;  // it is another step's limit
  const int64_t before = share_.limit;
  raise_limit(share_of(std::max(facts_.measured->plain_peak(), plain_with(request_of(missing)))));
  return missing - (share_.limit - before);
}

/// May the limit rise for the step in force?
bool OnlineEviction::may_rise() {
  const MutexLock lock(mutex_);
  return has_share() && ledger_.enforced_limit() >= share_.limit && share_.limit < share_.most;
}

/// May the step, with `request` more, take more in plain than those that its limit is a share of, or its limit give
/// way?
bool OnlineEviction::may_outgrow(int64_t request) {
  {
    const MutexLock lock(mutex_);
    if (share_.gives_way) return true;
    const int64_t plain = std::max(facts_.measured->plain_peak(), plain_with(request));
    if (!share_.of || plain - base_ > *share_.of) return true;
  }
  const auto step = step_in_progress();
  if (step == nullptr) return false;
  const TapeLock lock = lock_for_a_while(step->mutex);
  return lock.owns_lock() && !facts_.is_covered(*step, request);
}

/// A share is one of what plain allocates. Small ones are less than the allocator reserves for a single tensor.
bool OnlineEviction::may_reserve_more() {
  const MutexLock lock(mutex_);
  return share_.percent > 0;
}

/// Nothing more can be evicted: lets the limit rise so that `missing` bytes fit. False if it may not.
bool OnlineEviction::give_way(int64_t missing) {
  const int64_t request = [&] {
    const MutexLock lock(mutex_);
    return request_of(missing);
  }();
  if (!may_rise() || !may_outgrow(request)) return false;
  const MutexLock lock(mutex_);
  raise_limit(share_.limit + missing);
  return true;
}

std::shared_ptr<Tape> OnlineEviction::step_in_progress() {
  const MutexLock lock(mutex_);
  return current_.lock();
}

bool OnlineEviction::reclaim(int64_t bytes) {
  bytes = raise_to_share(bytes);
  return bytes <= 0 || release_records(bytes) || evict_any(bytes, [=, this] { return give_way(bytes); });
}

bool OnlineEviction::reclaim_block(int64_t bytes) {
  return evict_any(bytes, [] { return false; });
}

/// Where the step in progress needs nothing to be dropped: frees what its record holds beyond plain. Nothing can be
/// evicted after that, so that it must not be for lack of blocks: what a device's allocator reserves is more.
bool OnlineEviction::release_records(int64_t bytes) {
  const auto step = step_in_progress();
  if (step == nullptr || !facts_.fits_in_plain) return false;
  const int64_t limit = ledger_.enforced_limit(), request = bytes + limit - ledger_.current();
  const Share share = [this] {
    const MutexLock lock(mutex_);
    return share_;
  }();
  const TapeLock lock = lock_for_a_while(step->mutex);
  if (!lock.owns_lock() || (ledger_.reserved() > 0 && share.percent == 0)) return false;
  const bool is_all = share.percent >= 100 && share.limit < share.most;
  const bool fits = is_all || facts_.fits_in_plain(*step, limit - facts_.baseline);
  return fits && plain_with(request) <= limit && step->settle();
}

/// `gives_way()`: asked before values in a user's hands become leaves.
bool OnlineEviction::evict_any(int64_t bytes, const std::function<bool()>& gives_way) {
  const auto tapes = living_tapes();
  int64_t freed = 0;
  for (const auto& tape : tapes) {
    const TapeLock lock = lock_for_a_while(tape->mutex);
    if (lock.owns_lock()) freed += tape->release_unused_generators();
  }
  for (const auto& tape : tapes) {
    if (freed >= bytes) break;
    TapeLock lock = lock_for_a_while(tape->mutex);
    while (!lock.owns_lock() && tape->moves && tape->moves->is_waiting()) lock = lock_for_a_while(tape->mutex);
    if (!lock.owns_lock()) continue;
    if (tape->counts.replays > kMostReplays * static_cast<int64_t>(tape->program.size()) + 1000) continue;
    const Evicted evicted = evict(*tape, bytes - freed, times_for(tape).get());
    freed += evicted.bytes;
    note_left(evicted.left);
    if (evicted.left != INT64_MAX) ++tape->counts.shortages;  // else what was moved made room
  }
  if (freed > 0) return true;
  // Nothing left to drop: at last, what the records hold in vain. Values in a user's hands become leaves only where the
  // limit cannot give way: a graph without their operators is not that of the steps to come.
  const auto collect = [&](bool spare_living) {
    return std::ranges::any_of(tapes, [&](const auto& tape) {
      const TapeLock lock = lock_for_a_while(tape->mutex);
      return lock.owns_lock() && tape->collect_to_free(spare_living);
    });
  };
  return collect(/*spare_living=*/true) || gives_way() ||
         (!memory::Dispensable::active() && collect(/*spare_living=*/false));
}

bool OnlineEviction::refuses() {
  if (facts_.pool != nullptr && facts_.pool->is_others_thread()) return false;  // that step has the same limit
  std::shared_ptr<Tape> tape;
  {
    const MutexLock lock(mutex_);
    tape = current_.lock();
  }
  if (tape == nullptr) return true;
  // A collective is under way on one of its library's threads. The other ranks wait for it.
  if (tape->before_collective && Recorder::current() == nullptr) return false;
  return tape->extent == nullptr || tape->extent->covers(Recorder::activity());
}

int64_t OnlineEviction::plain_with(int64_t request) const {
  return ledger_.plain_current() + (memory::FrozenPlain::active() ? 0 : request);
}

}  // namespace remat

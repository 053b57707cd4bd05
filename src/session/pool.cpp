#include <remat/pool.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include <remat/error.h>
#include <remat/memory.h>

#include "memory/interpreter_lock.h"
#include "session/pool_state.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

/// A thread that waits looks so often whether it was interrupted, and whether memory outside of steps was freed.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Pool::Pool(const Budget& bytes) : budget_(bytes) {
  if (bytes.kind() != Budget::Kind::kBytes) {
    throw Error("[pool] a pool of \"" + bytes.to_string() + "\" has no meaning; give bytes, as in \"6GiB\"");
  }
  budget_.kind_ = Budget::Kind::kPool;
  budget_.pool_ = std::make_shared<PoolState>(bytes.byte_count());
}

Pool::operator Budget() const { return budget_; }
int64_t Pool::running() const { return budget_.pool()->running(); }
int64_t Pool::waiting() const { return budget_.pool()->waiting(); }

int64_t PoolState::running() { return count(true); }
int64_t PoolState::waiting() { return count(false); }

int64_t PoolState::count(bool running) {
  forget_parents_steps();
  const MutexLock lock(mutex_);
  return std::ranges::count(entries_, running, [](const EntryPtr& entry) { return entry->runs; });
}

/// Unchecked: the first thread of the child that comes here does it, and others wait.
void PoolState::forget_parents_steps() REMAT_UNCHECKED {
  const int done = 2 * forks(), in_progress = done + 1;
  for (int state = forgotten_; state != done; state = forgotten_) {
    if (state == in_progress || !forgotten_.compare_exchange_strong(state, in_progress)) {
      std::this_thread::yield();
      continue;
    }
    new (&mutex_) Mutex;  // locked, maybe, by a thread that is not there
    new (&changed_) std::condition_variable_any;
    entries_.clear();
    forgotten_ = done;
  }
}

PoolDemands PoolState::others(const Entry& entry) const {
  PoolDemands demands;
  for (const EntryPtr& each : entries_) {
    if (each.get() != &entry) demands.push_back(each->demand);
  }
  return demands;
}

void PoolState::arrive(const EntryPtr& entry) {
  forget_parents_steps();
  const MutexLock lock(mutex_);
  entries_.push_back(entry);
  for (const EntryPtr& each : entries_) {
    if (entries_.size() > each->company.size()) each->company = others(*each);
  }
}

void PoolState::leave(const EntryPtr& entry) noexcept {
  const MutexLock lock(mutex_);
  std::erase(entries_, entry);
  changed_.notify_all();
}

/// Those that wait or run now, and of `earlier` as many more as have at once been there before.
PoolDemands PoolState::company(const Entry& entry, const PoolDemands& earlier) const {
  PoolDemands demands = others(entry);
  for (const auto& before : earlier) {
    if (demands.size() >= earlier.size()) break;
    const bool is_there =
        std::ranges::any_of(demands, [&](const auto& now) { return now->session == before->session; });
    if (!is_there) demands.push_back(before);
  }
  return demands;
}

/// Has the step of `entry` begin if it is the next and there is room for it.
bool PoolState::admit(Entry& entry, const PoolDemands& earlier) {
  int64_t room = std::min(bytes_, memory::limit()) - entry.ledger.current();
  int64_t granted = 0;
  bool beside_others = false;
  for (const EntryPtr& each : entries_) {  // those in progress, then those that wait
    if (each.get() == &entry) break;
    if (!each->runs || each->alone) return false;
    const int64_t taken = each->thread->count() - each->thread_bytes;
    room += taken;
    granted += std::max(taken, each->granted);
    beside_others = true;
  }
  const int64_t free = room - granted;
  const bool fits = entry.demand->is_known() && entry.demand->least() <= free;
  if (beside_others && !fits) return false;
  entry.runs = true;
  entry.alone = !fits;
  entry.thread_bytes = entry.thread->count();
  entry.granted =
      fits ? std::min(free, share_of(*entry.demand, company(entry, earlier), room)) : std::max<int64_t>(0, free);
  return true;
}

bool PoolState::wait(Entry& entry, const PoolDemands& earlier) {
  for (bool has_waited = false;; has_waited = true) {
    {
      const MutexLock lock(mutex_);
      if (admit(entry, earlier)) {
        changed_.notify_all();  // there may be room for the next, too
        return has_waited;
      }
      changed_.wait_for(mutex_, kLook);
    }
    check_interrupt();
  }
}

PoolStep::PoolStep(std::shared_ptr<PoolState> pool, memory::Ledger& ledger, PoolDemand demand, PoolDemands& company)
    : pool_(std::move(pool)),
      entry_(std::make_shared<PoolState::Entry>(
          PoolState::Entry{.ledger = ledger,
                           .demand = std::make_shared<const PoolDemand>(std::move(demand)),
                           .thread = memory::ThreadBytes::of_this_thread()})),
      company_(company) {
  const WithoutInterpreterLock unlocked;
  const auto arrival = std::chrono::steady_clock::now();
  pool_->arrive(entry_);
  try {
    if (pool_->wait(*entry_, company_)) waited_seconds_ = seconds_since(arrival);
  } catch (...) {
    pool_->leave(entry_);
    throw;
  }
}

PoolStep::~PoolStep() {
  if (forks_ != forks()) return;  // it is the parent's
  const WithoutInterpreterLock unlocked;
  pool_->leave(entry_);
  company_ = std::move(entry_->company);
}

bool PoolStep::is_others_thread() const {
  const MutexLock lock(pool_->mutex_);
  return std::ranges::any_of(pool_->entries_, [this](const PoolState::EntryPtr& each) {
    return each != entry_ && each->runs && each->thread.get() == memory::ThreadBytes::of_this_thread_if_asked();
  });
}

}  // namespace remat

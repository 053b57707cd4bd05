#include "memory/enforcements.h"

#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <remat/error.h>

#include "memory/interpreter_lock.h"

namespace remat::memory {

/// A call of a reclaimer in progress. Calls of one thread form a stack, so that an allocation inside reclaim() does not
/// ask the same reclaimer again, and an enforcement that ends inside it does not wait for itself.
class Enforcements::Call {
 public:
  /// The entry's `calls` has been raised by next_after().
  Call(Enforcements& owner, std::shared_ptr<Entry> entry)
      : owner_(owner), entry_(std::move(entry)), outer_(std::exchange(innermost(), this)) {}
  ~Call() {
    innermost() = outer_;
    // Notified under the lock: a waiting destructor may be the last to keep the condition variable's owner alive.
    const MutexLock lock(owner_.mutex_);
    --entry_->calls;
    owner_.call_ended_.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Reclaimer& reclaimer() { return entry_->reclaimer; }

  /// How many calls of `entry` this thread is inside of, this object not counted.
  static int64_t on_this_thread(const Entry& entry) {
    int64_t count = 0;
    for (const Call* call = innermost(); call != nullptr; call = call->outer_) count += call->entry_.get() == &entry;
    return count;
  }

 private:
  static Call*& innermost() {
    thread_local Call* call = nullptr;
    return call;
  }

  Enforcements& owner_;
  std::shared_ptr<Entry> entry_;
  Call* outer_;
};

class Enforcements::Handle final : public Ledger::Enforcement {
 public:
  Handle(Enforcements& owner, std::shared_ptr<Entry> entry) : owner_(owner), entry_(std::move(entry)) {}
  ~Handle() override { owner_.remove(entry_); }

 private:
  Enforcements& owner_;
  std::shared_ptr<Entry> entry_;
};

std::unique_ptr<Ledger::Enforcement> Enforcements::enforce(int64_t limit, Reclaimer& reclaimer) {
  if (limit <= 0) {
    throw Error("[memory] a limit of " + std::to_string(limit) + " bytes cannot be enforced; use a positive number");
  }
  const MutexLock lock(mutex_);
  const Key key{limit, ++arrivals_};
  auto entry = std::make_shared<Entry>(Entry{reclaimer, key});
  auto handle = std::make_unique<Handle>(*this, entry);
  entries_.emplace(key, std::move(entry));
  update_smallest();
  return handle;
}

void Enforcements::remove(const std::shared_ptr<Entry>& entry) {
  const WithoutInterpreterLock unlocked;  // which reclaimers may need
  const MutexLock lock(mutex_);
  const auto known = entries_.find(entry->key);
  if (known == entries_.end() || known->second != entry) return;  // made in a process that this one was forked from
  entries_.erase(known);
  update_smallest();
  call_ended_.wait(mutex_, [&] { return entry->calls == Call::on_this_thread(*entry); });
}

void Enforcements::update_smallest() {
  smallest_.store(entries_.empty() ? INT64_MAX : entries_.begin()->first.first, std::memory_order_release);
}

void Enforcements::set_limit(const Reclaimer& reclaimer, int64_t limit) {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Entry>> changed;
  for (const auto& [key, entry] : entries_) {
    if (&entry->reclaimer == &reclaimer) changed.push_back(entry);
  }
  for (const auto& entry : changed) {
    entries_.erase(entry->key);
    entry->key.first = limit;
    entries_.emplace(entry->key, entry);
  }
  update_smallest();
}

std::pair<Enforcements::Key, std::shared_ptr<Enforcements::Entry>> Enforcements::next_after(Key key) {
  const MutexLock lock(mutex_);
  auto next = entries_.upper_bound(key);
  while (next != entries_.end() && Call::on_this_thread(*next->second) > 0) ++next;
  if (next == entries_.end()) return {};
  ++next->second->calls;
  return *next;
}

/// Asks the reclaimers until one says yes. One at a time, so that the end of one enforcement never waits for the
/// reclaimer of another.
template <class Ask>
bool Enforcements::any(Ask ask) {
  for (auto [key, entry] = next_after({0, 0}); entry != nullptr; std::tie(key, entry) = next_after(key)) {
    if (ask(Call(*this, entry).reclaimer())) return true;
  }
  return false;
}

bool Enforcements::reclaim(int64_t bytes) {
  return any([=](Reclaimer& reclaimer) { return reclaimer.reclaim(bytes); });
}

bool Enforcements::reclaim_block(int64_t bytes) {
  return any([=](Reclaimer& reclaimer) { return reclaimer.reclaim_block(bytes); });
}

bool Enforcements::may_reserve_more() {
  return any([](Reclaimer& reclaimer) { return reclaimer.may_reserve_more(); });
}

void Enforcements::meet_older(int64_t bytes) {
  // Taken down first: a reclaimer that raises its limit moves behind the others.
  std::vector<std::shared_ptr<Entry>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (Call::on_this_thread(*entry) > 0) continue;
      ++entry->calls;
      all.push_back(entry);
    }
  }
  for (auto& entry : all) Call(*this, std::move(entry)).reclaimer().meets_older(bytes);
}

void Enforcements::after_fork_in_child() {
  entries_.clear();
  smallest_.store(INT64_MAX, std::memory_order_release);
  new (&call_ended_) std::condition_variable_any;  // somebody may have waited: its destructor would wait for him
  mutex_.unlock();
}

bool fits_after_a_while(const std::function<bool()>& fits) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  constexpr int kPauses = 16;
  for (int i = 0; i < kPauses; ++i) {
    if (fits()) return true;
    const WithoutInterpreterLock unlocked;
    std::this_thread::sleep_for(kPause);
  }
  return fits();
}

bool Enforcements::refuse(int64_t needed, int64_t request, const std::function<bool()>& fits) {
  bool passed = false;
  for (Key key{0, 0};; passed = true) {
    std::shared_ptr<Entry> entry;
    {
      const MutexLock lock(mutex_);
      const auto next = entries_.upper_bound(key);
      if (next == entries_.end() || needed <= next->first.first) return passed;
      key = next->first;
      entry = next->second;
      ++entry->calls;
    }
    Call call(*this, std::move(entry));
    if (!call.reclaimer().refuses()) continue;
    if (fits && fits_after_a_while(fits)) return false;
    call.reclaimer().refuse(needed, request, key.first);
  }
}

}  // namespace remat::memory

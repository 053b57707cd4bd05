#include "observe/tapes.h"

#include <chrono>
#include <new>

#include <pthread.h>

#include "memory/fork.h"
#include "tape/tape.h"

namespace remat {

Tapes& Tapes::all() {
  static auto* const tapes = [] {
    pthread_atfork([] { all().before_fork(); }, [] { all().after_fork_in_parent(); },
                   [] { all().after_fork_in_child(); });
    return new Tapes;
  }();
  return *tapes;
}

std::shared_ptr<Tape> Tapes::make() {
  std::shared_ptr<Tape> made(new Tape, [this](Tape* tape) {
    remove(*tape);
    delete tape;
  });
  const MutexLock lock(mutex_);
  tapes_.emplace(made.get(), false);
  count_ = tapes_.size();
  return made;
}

void Tapes::remove(Tape& tape) {
  const MutexLock lock(mutex_);
  tapes_.erase(&tape);
  count_ = tapes_.size();
}

/// Released without a lock held: the last reference to a tape removes it from here.
std::vector<std::shared_ptr<Tape>> Tapes::living() {
  std::vector<std::shared_ptr<Tape>> living;
  const MutexLock lock(mutex_);
  for (const auto& [tape, is_locked] : tapes_) {
    if (auto shared = tape->weak_from_this().lock()) living.push_back(std::move(shared));
  }
  return living;
}

void Tapes::hand_out(const at::Tensor& tensor, const Tape* except) {
  if (!exist() || !tensor.defined() || !is_plain(tensor)) return;
  for (const auto& tape : living()) {
    if (tape.get() == except) continue;
    const std::lock_guard lock(tape->mutex);
    tape->values.hand_out(*storage_of(tensor));
  }
}

void Tapes::replace_data(const at::TensorBase& tensor, const at::TensorBase& other) {
  if (!exist() || !tensor.defined()) return;
  for (const auto& tape : living()) {
    const std::lock_guard lock(tape->mutex);
    tape->replace_data(tensor, other);
  }
}

void Tapes::let_go(const at::TensorBase& tensor) {
  if (!exist() || !tensor.defined()) return;
  for (const auto& tape : living()) {
    const std::lock_guard lock(tape->mutex);
    tape->let_go(*tensor.unsafeGetTensorImpl());
  }
}

void Tapes::before_fork() {
  mutex_.lock();
  const auto deadline = std::chrono::system_clock::now() + kLongestWaitForFork;
  for (auto& [tape, is_locked] : tapes_) is_locked = tape->mutex.try_lock_until(deadline);
}

void Tapes::after_fork_in_parent() {
  for (auto& [tape, is_locked] : tapes_) {
    if (is_locked) tape->mutex.unlock();
  }
  mutex_.unlock();
}

void Tapes::after_fork_in_child() {
  for (const auto& [tape, is_locked] : tapes_) {
    tape->closed = true;
    tape->inherited = true;
    tape->set_trace(nullptr);
    new (&tape->mutex) TapeMutex;  // locked by a thread that this process does not have
  }
  mutex_.unlock();
}

}  // namespace remat

// src/observe/tapes.h -- all tapes of the process: for forks, and for threads that write to what another one recorded.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "util/mutex.h"

namespace remat {

class Tape;

/// Thread-safe.
class Tapes {
 public:
  /// Never destroyed.
  static Tapes& all();

  std::shared_ptr<Tape> make();
  /// Is there any?
  bool exist() const { return count_.load(std::memory_order_relaxed) > 0; }

  /// The memory of `tensor` is about to be given to somebody who may write to it, on whatever thread. `except`: a tape
  /// that knows better.
  void hand_out(const at::Tensor& tensor, const Tape* except = nullptr);
  /// `tensor.data = other` is about to happen: see Tape::replace_data().
  void replace_data(const at::TensorBase& tensor, const at::TensorBase& other);
  /// See Tape::let_go().
  void let_go(const at::TensorBase& tensor);

 private:
  void remove(Tape& tape);
  std::vector<std::shared_ptr<Tape>> living();
  // Around a fork. The child has a copy of each tape, and records on none. Not checked: between them the process is
  // copied.
  void before_fork() REMAT_UNCHECKED;
  void after_fork_in_parent() REMAT_UNCHECKED;
  void after_fork_in_child() REMAT_UNCHECKED;

  Mutex mutex_;
  /// Whether it is locked for a fork: not where a thread keeps it for too long.
  std::unordered_map<Tape*, bool> tapes_ REMAT_GUARDED_BY(mutex_);
  std::atomic<size_t> count_{0};
};

}  // namespace remat

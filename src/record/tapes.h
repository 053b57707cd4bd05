// src/record/tapes.h -- all tapes of the process: for forks, and for threads that write to what another one recorded.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat {

class Tape;

/// Thread-safe.
class Tapes {
 public:
  /// Never destroyed.
  static Tapes& all();

  void add(Tape& tape);
  void remove(Tape& tape);
  /// Is there any?
  bool exist() const { return count_.load(std::memory_order_relaxed) > 0; }

  /// The memory of `tensor` is about to be given to somebody who may write to it, on whatever thread. `except`: a tape
  /// that knows better.
  void hand_out(const at::Tensor& tensor, const Tape* except = nullptr);
  /// `tensor.data = other` is about to happen: see Tape::replace_data().
  void replace_data(const at::TensorBase& tensor, const at::TensorBase& other);

 private:
  std::vector<std::shared_ptr<Tape>> living();
  // Around a fork. The child has a copy of each tape, and records on none.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  std::mutex mutex_;
  std::unordered_map<Tape*, bool>
      tapes_;  ///< whether it is locked for a fork: not where a thread keeps it for too long
  std::atomic<size_t> count_{0};
};

}  // namespace remat

// src/observe/step_extent.h -- which work belongs to a step.
//
// To a step that its user delimits, all work until it ends. Who finds the ends of steps by himself (remat.wrap) knows
// the forward calls of a model, and no more: between two of them there is the rest of the step, such as the loss, or,
// where the training loop was left by an exception, anything. There belong to the step
//
//   its forward calls;
//   operators whose inputs' gradients lead into one of them;
//   backward passes that lead into one of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "util/mutex.h"

namespace remat {

/// Where the gradients of an operator's inputs lead to.
class History;
/// Null where no input needs a gradient.
std::shared_ptr<const History> history_of(c10::ArrayRef<const c10::IValue> inputs);

/// Belongs to the thread that makes it: calls of other threads are not those of the step.
class StepExtent : public std::enable_shared_from_this<StepExtent> {
 public:
  /// `end` ends the step. Called on any thread, with no lock of the tape held, for steps with forward calls alone: when
  /// a backward pass that belongs to the step has ended by an exception (not completed), and as end_if_released() says.
  /// `is_released`: whether no saved tensor is left; called likewise.
  StepExtent(std::function<void(bool completed)> end, std::function<bool()> is_released);

  /// From the first call on, not all work until the end of the step belongs to it. On the thread of the step; calls do
  /// not nest. `goes_on` is asked on this thread, inside of an operator and with no lock held, before one is refused
  /// memory for the forward call's sake: false where the call has been left without leave_forward().
  void enter_forward(std::function<bool()> goes_on = {});
  void leave_forward();
  /// The step has forward calls, and is in none of them. Thread-safe.
  bool is_between_calls() const { return delimited_by_calls_ && !in_forward_; }

  /// What a thread is doing: see Recorder::activity().
  struct Activity {
    bool watched = false;  ///< the thread has a recorder
    bool records = false;  ///< the operators of the thread are recorded, and what runs is none of remat's own
    std::vector<std::shared_ptr<const History>> histories;  ///< of the inputs of operators that are running
  };
  /// Does what this thread is doing belong to the step? Thread-safe.
  bool covers(const Activity& activity);
  /// A saved tensor is asked for. Of many backward passes since the last forward call that do not belong to the step,
  /// the last ends it: another model is trained while a result is kept. Thread-safe.
  void on_unpack();
  /// Ends the step if it is between calls and backward passes, and no saved tensor is left of those that its calls have
  /// made: nothing can come any more. It is completed if a backward pass was. Thread-safe.
  void end_if_released();
  /// How many backward passes that belong to the step have ended without an exception. Thread-safe.
  int backward_passes() const { return passes_; }
  /// Does it lead into a forward call?
  bool reaches(const History& history) const;

 private:
  bool is_forward_going_on(const Activity& activity);
  bool contains(uint64_t thread, uint64_t sequence_number) const;
  bool covers_backward(int task);
  void after_backward(void (*done)(StepExtent& extent, bool completed));
  void watch(int task);
  /// A backward pass has ended. A failure inside of another one is that one's to pass on.
  void end_unless_in_backward();

  const std::function<void(bool completed)> end_;
  const std::function<bool()> is_released_;
  const uint64_t thread_;
  std::atomic<bool> delimited_by_calls_{false}, in_forward_{false};
  std::atomic<bool> saves_{false};  ///< a forward call has left saved tensors
  std::atomic<int> backwards_{0};   ///< of the step, in progress
  std::atomic<int> passes_{0};      ///< of the step, completed
  std::atomic<int> watched_{-1};    ///< the last graph task that watch() was called for
  std::atomic<int64_t> known_{-1};  ///< the last one that covers_backward() looked at, and what it found
  std::atomic<int> other_{-1};      ///< the last graph task that does not belong to the step
  std::atomic<int> others_{0};      ///< how many since the last forward call
  std::function<bool()> goes_on_;
  mutable Mutex mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> calls_
      REMAT_GUARDED_BY(mutex_);  ///< sequence numbers of autograd's nodes, from and to
};

}  // namespace remat

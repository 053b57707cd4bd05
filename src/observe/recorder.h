// src/observe/recorder.h -- watches the operators of one thread and writes them on a tape.
//
// Operators are seen through at::RecordFunction. Those that a kernel calls below autograd are its own business. Of the
// others it makes plain data (tape/call.h), which CallWriter writes down.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/record_function.h>

#include "observe/call_generators.h"
#include "observe/operator_trial.h"
#include "observe/policy_scopes.h"
#include "observe/step_extent.h"
#include "operators/draw_section.h"
#include "tape/call_writer.h"

namespace remat {

class Recorder {
 public:
  /// The recorder of this thread; nullptr while nothing is recorded, and from when another thread closed the tape.
  static Recorder* current();
  /// The same where it writes `tape`; nullptr where that tape's step has ended, or another thread ends it.
  static Recorder* current_of(const std::shared_ptr<Tape>& tape);

  /// Makes `tape` the one that this thread records on. The caller restores with stop().
  static void start(std::shared_ptr<Tape> tape);
  static void stop();
  /// A backward call of this thread has returned, and has put the thread's callbacks back as they were when it began:
  /// recording may have stopped (or started) in it.
  static void left_backward();
  /// Called by autograd on a thread of its own, as for devices other than the CPU: where the thread that called
  /// backward records, so does this one until its part of the pass is over.
  static void join_backward();
  /// Are operators of this thread looked at? That costs each some time.
  static bool is_watching_operators() { return own_callback().has_value(); }

  const std::shared_ptr<Tape>& tape() const { return tape_; }
  /// What runs is remat's own.
  bool is_suspended() const { return suspended_ > 0; }
  /// No operator is running that it records, and nothing of remat's own.
  bool is_idle() const { return running_.empty() && suspended_ == 0; }
  /// An operator is running that it records.
  bool runs_recorded_operator() const { return !running_.empty() && suspended_ == 0 && opaque_ == 0; }

  /// While it lives, operators of this thread pass unseen: those of replays.
  class Suspension {
   public:
    Suspension() : Suspension(current()) {}
    explicit Suspension(Recorder* recorder) : recorder_(recorder) {
      if (recorder_ != nullptr) ++recorder_->suspended_;
    }
    ~Suspension() {
      if (recorder_ != nullptr) --recorder_->suspended_;
    }
    Suspension(const Suspension&) = delete;
    Suspension& operator=(const Suspension&) = delete;

   private:
    Recorder* recorder_;
  };

  /// Between the two, operators are not recorded, and what they make is a leaf: a compiled kernel may write to it
  /// through a pointer afterwards. Writes to values that are known are seen. They nest.
  void begin_opaque() { ++opaque_; }
  void end_opaque() { --opaque_; }
  /// CallWriter's, with the tape locked.
  void begin_compiled();
  void end_compiled();
  void announce_write(const at::Tensor& tensor);

  /// Calls so far, out of the kernels of recorded operators and of replays, of operators that run once.
  uint64_t inner_calls_that_run_once() const { return inner_calls_that_run_once_; }

  /// What this thread is doing.
  static StepExtent::Activity activity();

  /// For the kernel of an operator that could write its result over `gradient`, which it is about to read: may it? Only
  /// where nobody else has the tensor or its memory, and one of autograd's own nodes called the operator. Once for each
  /// call: the caller has to do so, and plain's account has the result from now on.
  bool reuses(const at::Tensor& gradient);

  PolicyScopes::Id push_scope(PolicyRules rules);
  PolicyScopes::Id push_scope(ModulePlaces modules);
  void pop_scope(PolicyScopes::Id id);

  CallWriter& calls() { return calls_; }

  explicit Recorder(std::shared_ptr<Tape> tape) : tape_(std::move(tape)), calls_(*tape_) {}
  ~Recorder() {
    running_.clear();
    calls_.clear();
    end_writing();
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  struct WritingEnds {
    explicit WritingEnds(Recorder& ended) : recorder(ended) {}
    ~WritingEnds() { recorder.end_writing(); }
    WritingEnds(const WritingEnds&) = delete;
    WritingEnds& operator=(const WritingEnds&) = delete;
    Recorder& recorder;
  };
  /// An operator that is running, and that the tape's writer knows: what its end is compared with.
  struct Running {
    const at::RecordFunction* fn = nullptr;
    std::shared_ptr<const History> history;  // of its inputs, between the forward calls of a step
    OperatorTrial trial;
    CallGenerators generators;
    std::unique_ptr<DrawSection> draws;
    int exceptions = 0;
    std::chrono::steady_clock::time_point begin;
  };

  static void watch_operators(bool watch);
  static Recorder* joined();
  /// One thread at a time writes operators on a tape. False while another one's are running: then this one's results
  /// are leaves.
  bool begins_to_write();
  /// If none of its operators is running.
  void end_writing() noexcept;
  /// Of on_start(), if it is among the thread's.
  static std::optional<at::CallbackHandle> own_callback();
  static std::unique_ptr<at::ObserverContext> on_meta_kernel_start(const at::RecordFunction& fn);
  static void on_meta_kernel_end(const at::RecordFunction& fn, at::ObserverContext* context);
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);
  static void on_end(const at::RecordFunction& fn, at::ObserverContext* context);

  /// Notes the gradient that an operator of backward with `inputs` may write over. On the meta device, whose kernels do
  /// not, the trace is told that it does.
  void offer_gradient(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);
  void begin(const at::RecordFunction& fn, const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);
  void end(Running running, c10::ArrayRef<const c10::IValue> outputs);
  /// Begins another scope of the tape where the outermost policy scope is another one, or in another module.
  void scopes_changed();
  /// A kernel calls the operator that `fn` observes, which is not recorded.
  void note_inner_call(const at::RecordFunction& fn);

  std::shared_ptr<Tape> tape_;
  CallWriter calls_;
  std::vector<Running> running_;  ///< one for each call that calls_ has begun
  PolicyScopes scopes_;
  int suspended_ = 0;
  int opaque_ = 0;
  uint64_t inner_calls_that_run_once_ = 0;
  const c10::StorageImpl* offered_ = nullptr;  ///< the memory of that gradient; compared, never read
  at::CallbackHandle meta_callback_ = 0;
  PolicyScopes::Region scope_region_;  ///< that the tape's present scope is for
};

}  // namespace remat

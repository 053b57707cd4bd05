// src/observe/recorder.h -- watches the operators of one thread and writes them on a tape.
//
// Operators are seen through at::RecordFunction. Those that a kernel calls below autograd are its own business. Those
// that it calls at autograd's level are recorded, and then it depends on what is left for the outer operator:
//
//   composites, and the outer of autocast's two calls   their results come from the inner ones: nothing is recorded
//   mul_, which clones what it is about to overwrite    the write is its own: recorded after the clone
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/record_function.h>

#include "observe/operator_trial.h"
#include "observe/policy_scopes.h"
#include "observe/step_extent.h"
#include "operators/draw_section.h"
#include "tape/tape.h"

namespace remat {

/// A tensor that autograd saved while the operator that made it may still be running.
class UnboundSave {
 public:
  /// Called when that operator has ended. REQUIRES: tape's mutex.
  virtual void bind() = 0;

 protected:
  ~UnboundSave() = default;
};

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
  bool is_idle() const { return pending_.empty() && suspended_ == 0; }
  /// An operator is running that it records.
  bool runs_recorded_operator() const { return !pending_.empty() && suspended_ == 0 && opaque_ == 0; }

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
  /// Between the two, nobody is given pointers to what operators make. They nest.
  void begin_compiled();
  void end_compiled();

  /// Calls so far, out of the kernels of recorded operators and of replays, of operators that run once.
  uint64_t inner_calls_that_run_once() const { return inner_calls_that_run_once_; }

  /// What this thread is doing.
  static StepExtent::Activity activity();

  /// Somebody is about to write to `tensor` in a way that is no operator.
  void announce_write(const at::Tensor& tensor);

  /// For the kernel of an operator that could write its result over `gradient`, which it is about to read: may it? Only
  /// where nobody else has the tensor or its memory, and one of autograd's own nodes called the operator. Once for each
  /// call: the caller has to do so, and plain's account has the result from now on.
  bool reuses(const at::Tensor& gradient);

  PolicyScopes::Id push_scope(PolicyRules rules);
  PolicyScopes::Id push_scope(ModulePlaces modules);
  void pop_scope(PolicyScopes::Id id);

  /// A saved tensor that an operator still running may be the producer of: it is bound when that operator ends. Returns
  /// false if no running operator can have produced `tensor`.
  bool bind_later(UnboundSave& saved, const c10::TensorImpl& tensor);
  void forget(UnboundSave& saved);

  explicit Recorder(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}
  ~Recorder() {
    pending_.clear();
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
  struct Write {
    StoragePtr storage;
    ValueId before = kNone;
    c10::VariableVersion version_counter{c10::VariableVersion::DISABLED};
    uint32_t version = 0;        // before the operator ran
    std::optional<Strip> strip;  // that the operator overwrites, where the other bytes may be undefined
    bool whole = false;          // the operator overwrites all of the storage
  };
  struct Pending {
    const at::RecordFunction* fn = nullptr;
    const OperatorInfo* info = nullptr;
    Operation operation;
    size_t values = 0;            // on the tape before it
    Program::Mark before, after;  // the tape's arrays around its capture
    std::vector<Write> writes;
    std::vector<const c10::StorageImpl*> unrecorded;  // storages that it writes to while it is not repeatable
    std::vector<at::Tensor> communicated;             // that a collective writes to: `fn` has no inputs at its end
    std::vector<UnboundSave*> saved;
    std::vector<ValueId> unheld;  // leaves that it reads: unless it saves them, its results are unheld leaves too
    std::shared_ptr<const History> history;  // of its inputs, between the forward calls of a step
    OperatorTrial trial;
    bool updates_statistics = false;
    bool repeatable = true;  // false: its results are leaves
    bool suspect_random = false;
    at::Generator generator;          // that it may draw from, if its state was captured
    at::Generator default_generator;  // beside the one whose state is kept
    uint64_t default_drawn = 0;       // its state before the operator ran
    std::unique_ptr<DrawSection> draws;
    bool reads = false;                   // has an input with contents
    bool scalar_of_default_type = false;  // has a floating-point number, and no floating-point tensor
    bool inside_wrapper = false;  // below autograd, for a tensor that wraps others: nothing says who needs a gradient
    int exceptions = 0;
    std::chrono::steady_clock::time_point begin;
    std::optional<c10::Event> began, ended;  // on the device, where its operators are timed

    /// A factory, or a fill of all of given memory: kernels and users write to its result through pointers. Not a
    /// random fill: dropout's mask.
    bool makes_raw() const {
      if (info->blank) return false;
      if (info->factory || writes.empty()) return info->factory || !reads;
      return !reads && !info->random && std::ranges::all_of(writes, [](const Write& write) { return write.whole; });
    }
    bool writes_unrecorded(const c10::StorageImpl* storage) const {
      return std::find(unrecorded.begin(), unrecorded.end(), storage) != unrecorded.end();
    }
    bool writes_to(const c10::StorageImpl* storage) const {
      for (const auto& write : writes) {
        if (write.storage.get() == storage) return true;
      }
      return false;
    }
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

  /// Takes what the tensors among `values` hold into the account, where remat's allocator did not allocate it: of those
  /// that no recorded operator may ever read.
  void count(c10::ArrayRef<const c10::IValue> values);
  /// Notes the gradient that an operator of backward with `inputs` may write over. On the meta device, whose kernels do
  /// not, the trace is told that it does.
  void offer_gradient(c10::ArrayRef<const c10::IValue> inputs);
  std::unique_ptr<at::ObserverContext> begin_reshape(const at::Tensor& tensor) const;
  void end_reshape(const at::ObserverContext& context);
  void begin(const at::RecordFunction& fn, const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);
  /// Begins another scope of the tape where the outermost policy scope is another one, or in another module.
  void scopes_changed();
  void end(Pending& pending, c10::ArrayRef<const c10::IValue> outputs);
  void capture_argument(Pending& pending, size_t position, const c10::IValue& value);
  void capture_tensor(Pending& pending, const at::Tensor& tensor, bool written);
  static Write& watch_write(Pending& pending, const c10::TensorImpl& impl, ValueId before);
  /// What an operator that is about to run may draw from: without a state where it draws from nothing, nothing where
  /// its state cannot be told, be it that there is `no_room` for it.
  static std::optional<GeneratorRecord> generator_before(const OperatorInfo& info,
                                                         c10::ArrayRef<const c10::IValue> inputs, bool& no_room);
  void keep_generator(Pending& pending, GeneratorRecord generator);
  /// The default generator, beside which a user's operator with `inputs` is given another: it may draw from both.
  static at::Generator second_generator(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);
  ValueId read(const at::Tensor& tensor, bool overwritten);
  ValueId read_new(const at::Tensor& tensor, const StoragePtr& storage);
  void note_leaf_read(c10::StorageImpl& storage);
  void before_write(const at::Tensor& tensor);
  /// Of an operator that is not recorded.
  void before_writes(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);
  void before_writing_statistics(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);
  /// A kernel calls the operator that `fn` observes, which is not recorded.
  void note_inner_call(const at::RecordFunction& fn);
  /// The operators that are running wait for one that must run once, or does not repeat: no more do they.
  void keep_outer();
  /// Whether the default type decides what type an operator computes in: before it runs, and what its results tell.
  static void find_default_type(Pending& pending, c10::ArrayRef<const c10::IValue> inputs);
  void settle_default_type(Pending& pending, c10::ArrayRef<const c10::IValue> outputs);
  /// Where a call has contradicted its schema, no replay runs the operator any more.
  void check_trial(Pending& pending, c10::ArrayRef<const c10::IValue> outputs);
  void distrust(const OperatorInfo& info);
  /// Makes the result of an operator that is not recorded an unheld leaf, where it is no value yet.
  void add_unheld(const at::Tensor& tensor);
  /// What a collective has made or written to is a leaf. Where plain does not save it, the record does not hold it
  /// either: the results of reductions are as large as what is made of them.
  void leave_unheld(const Pending& pending, c10::ArrayRef<const c10::IValue> outputs);
  /// Operator `pending` has made raw value `id`, or filled it, in `storage`: a replay may do so again, where the
  /// generator's state takes fewer bytes than the value.
  void note_filled(const Pending& pending, ValueId id, const c10::StorageImpl& storage);
  void finish_writes(Pending& pending, OperationId producer);
  /// An `out` that had another size than the result was resized: the operator has not overwritten what it reached
  /// before.
  static void forget_resized(Pending& pending, c10::ArrayRef<const c10::IValue> outputs);
  void mark_packable(const Operation& operation, c10::ArrayRef<const c10::IValue> outputs);
  void bind_saved(Pending& pending);

  std::shared_ptr<Tape> tape_;
  std::vector<Pending> pending_;
  PolicyScopes scopes_;
  int suspended_ = 0;
  int opaque_ = 0;
  int compiled_ = 0;
  uint64_t inner_calls_that_run_once_ = 0;
  size_t first_compiled_ = SIZE_MAX;           ///< value that was made since begin_compiled()
  const c10::StorageImpl* offered_ = nullptr;  ///< the memory of that gradient; compared, never read
  at::CallbackHandle meta_callback_ = 0;
  uint32_t root_scope_ = 0;           ///< of the tape; 0: none
  PolicyScopes::Region root_region_;  ///< that it is for
};

}  // namespace remat

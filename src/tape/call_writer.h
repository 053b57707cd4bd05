// src/tape/call_writer.h -- writes operator calls on a tape, from what an observer has seen of them.
//
// Calls nest. Those that a kernel calls at autograd's level are written too, and then it depends on what is left for
// the outer operator:
//
//   composites, and the outer of autocast's two calls   their results come from the inner ones: nothing is written
//   mul_, which clones what it is about to overwrite    the write is its own: written after the clone
//
// No callbacks and no state of the thread: unit tests drive a tape by it. One thread at a time.
#pragma once

#include <vector>

#include "tape/call.h"
#include "tape/tape.h"

namespace remat {

class CallWriter {
 public:
  /// The tape must outlive it.
  explicit CallWriter(Tape& tape) : tape_(tape) {}
  CallWriter(const CallWriter&) = delete;
  CallWriter& operator=(const CallWriter&) = delete;

  /// Are no calls running?
  bool is_idle() const { return calls_.empty(); }
  void clear() { calls_.clear(); }

  // REQUIRES of all that follow: the tape's mutex.

  /// The call is about to run: takes down what it reads, and what it is going to write to.
  void begin(CallSite site);
  /// Of the call that began last: its operator; whether the state of its generator is kept.
  const OperatorInfo& last() const { return *calls_.back().info; }
  bool keeps_generator() const { return calls_.back().operation.generator != kNoId; }
  /// The call that began last has run: its results become values, what it wrote to becomes other values, and tensors
  /// that autograd saved meanwhile are bound to them.
  void end(CallEnd end);

  /// The calls that are running wait for an operator that must run once, or does not repeat: no more do they.
  void keep_running_calls();

  /// A tensor that autograd saves and that a running call may be the producer of: it is bound when that call ends.
  /// False if no running call can have made `tensor`.
  bool bind_later(UnboundSave& saved, const c10::TensorImpl& tensor);
  void forget(UnboundSave& saved);

  /// Somebody is about to write to `tensor` without a recorded operator.
  void before_write(const at::Tensor& tensor);
  /// The same of all that an operator that is not recorded writes to.
  void before_writes(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);

  /// Between the two, nobody is given pointers to what operators make. They nest.
  void begin_compiled();
  void end_compiled();
  bool in_compiled() const { return compiled_ > 0; }

  /// The outermost policy scope of the tape that calls are in from now on; 0: none.
  void set_scope(uint32_t scope) { scope_ = scope; }
  uint32_t scope() const { return scope_; }

 private:
  void begin(Call& call, CallSite& site, bool outermost);
  bool writes_leaf(const CallSite& site, bool outermost);
  void capture_argument(Call& call, size_t position, const c10::IValue& value);
  void capture_tensor(Call& call, const at::Tensor& tensor, bool written);
  void keep_generator(Call& call, GeneratorRecord generator);
  ValueId read(const at::Tensor& tensor, bool overwritten);
  ValueId read_new(const at::Tensor& tensor, const StoragePtr& storage);
  void note_leaf_read(c10::StorageImpl& storage);
  void before_writing_statistics(const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs);

  void end(Call& call, CallEnd& end);
  /// Did it draw what its generator's kept state says? False: from elsewhere.
  bool settle_generator(Call& call, uint64_t drawn);
  bool is_recorded(const Call& call, const CallEnd& end);
  void add_results(const Call& call, c10::ArrayRef<const c10::IValue> outputs, OperationId id);
  /// Makes the result of an operator that is not recorded an unavailable leaf, where it is no value yet.
  void add_unavailable(const at::Tensor& tensor);
  /// What a collective has made or written to is a leaf. Where plain does not save it, the record does not hold it
  /// either: the results of reductions are as large as what is made of them.
  void leave_unavailable(const Call& call, c10::ArrayRef<const c10::IValue> outputs);
  /// The call has made unread value `id`, or filled it, in `storage`: a replay may do so again, where the generator's
  /// state takes fewer bytes than the value.
  void note_filled(const Call& call, ValueId id, const c10::StorageImpl& storage);
  void finish_writes(Call& call, OperationId producer);
  void mark_packable(const Operation& operation, c10::ArrayRef<const c10::IValue> outputs);
  static void bind_saved(Call& call);

  Tape& tape_;
  std::vector<Call> calls_;
  int compiled_ = 0;
  size_t first_compiled_ = SIZE_MAX;  ///< value that was made since begin_compiled()
  uint32_t scope_ = 0;
};

/// Takes what the tensors among `values` hold into the account of the tape's device, where remat's allocator did not
/// allocate it: of those that no recorded operator may ever read.
void count_older(Tape& tape, c10::ArrayRef<const c10::IValue> values);

}  // namespace remat

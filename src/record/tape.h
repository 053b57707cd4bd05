// src/record/tape.h -- the record of a forward pass: which operator made which contents, from what.
//
//   program  the operators as they were called, in the order of execution.
//   values   contents that a storage had at one time. A storage written to in place holds one value after another; a
//            tensor is a view of a value (TensorView).
//
// Rule 1. A value without producer is a *leaf*: parameters, inputs, and everything that was not recorded or cannot be
//         repeated exactly. The tape holds its storage, because a replay may have to read it.
// Rule 2. A value with a producer can be recomputed. The tape holds its storage only in `kept`, and may let go of it.
// Rule 3. What a factory made (empty, zeros, arange, randn ...) is `raw`: kernels and users fill it through pointers,
//         which nobody sees. Operators that overwrite all of it are recorded; read as it is, it becomes a leaf.
// Rule 4. When a storage is written to, its old value no longer lives there: a leaf that a replay may still have to
//         read is copied first (Recorder), any other is forgotten as a place to read from.
// Rule 5. What no saved tensor can ever ask for is released by collect(), a mark and sweep over the arrays.
//
// Thread-safety: everything below needs `mutex`, which is recursive because freeing or allocating tensors under it may
// come back here (reclaim). Operators are never run while it is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/util/flat_hash_map.h>
#include <c10/util/intrusive_ptr.h>
#include <remat/plan.h>

#include "memory/allocation.h"
#include "record/following.h"
#include "record/packing.h"
#include "record/program.h"
#include "record/tensor_view.h"

namespace remat {

namespace memory {
class Ledger;
}

class StepExtent;
class Trace;

/// Why a leaf's contents cannot be read any more.
enum class Loss : uint8_t {
  kIntact,
  kWrittenUnseen,  ///< its version count went up, and no operator that remat saw wrote to it
  kNoRoom,         ///< an operator wrote to it, and there was no memory for a copy
  kEmptied,        ///< its storage was given other memory, with other contents
};

struct Value {
  c10::weak_intrusive_ptr<c10::StorageImpl> home{StoragePtr()};  ///< where the contents live, if it is still alive
  StoragePtr kept;  ///< remat's own reference; what is held only here can be given up
  c10::VariableVersion version_counter{c10::VariableVersion::DISABLED};  ///< of the tensor last seen on `home` ...
  uint32_t version = 0;           ///< ... and its count: a different one means an unseen write
  memory::Allocation allocation;  ///< behind the home: another one means that the storage was emptied since
  std::shared_ptr<const memory::LastContents> last_contents;  ///< of a leaf's allocation, where its end is seen
  int64_t bytes = 0;
  int64_t extent = 0;  ///< bytes that its producer's tensor reaches over; what lies behind is undefined
  OperationId producer = kNone;
  uint32_t result = 0;        ///< which tensor of the producer: a result, or kWritten + index in its written tensors
  uint32_t scope = 0;         ///< the outermost policy scope it was produced in; 0: none
  uint32_t saved = 0;         ///< saved tensors that refer to it
  uint32_t pending = 0;       ///< of those, not unpacked in this round
  uint32_t round = 1;         ///< one more each time when all have been unpacked and their graph was retained
  uint32_t anchor_of = 0;     ///< the last policy scope that read it from outside; 0: none. No policy drops it
  uint32_t held_for = 0;      ///< such scopes whose replays may need it: it stays
  uint32_t readers = 0;       ///< recorded operations that read it
  uint32_t wanted = 0;        ///< replays in progress that will read it: given up last
  ValueId successor = kNone;  ///< what an in-place write made of it, where saved tensors referred to it
  bool data = false;          ///< an operator's result that has no gradient
  bool raw = false;           ///< a factory's result: operators may overwrite it; read as it is, it becomes a leaf
  bool pinned = false;        ///< never given up: keep(), or the statistics of a batch normalization
  bool drop = false;          ///< give it up as soon as only the tape holds it
  bool extra = false;         ///< held for replays alone, or given up since: plain's account does not have it
  Loss loss = Loss::kIntact;  ///< of a leaf's contents
  bool parameter = false;     ///< a leaf of autograd's graphs that needs a gradient
  bool absent = false;        ///< saved, and given up: plain would hold it now
  Action action;              ///< by the plan that the step follows
  uint32_t made = 0;          ///< times that replays have made it in this round
  bool lent = false;          ///< somebody holds the memory of its home as such (DLPack)
  bool handed_out = false;    ///< somebody held its memory as such when it was given up
  uint8_t element_bytes = 0;  ///< of a value that may be packed; 0: it cannot be
  uint64_t checksum = 0;      ///< of the contents when given up (verify mode) or last watched; 0: not taken
  std::shared_ptr<const Packed>
      packed;  ///< the contents: instead of a replay, or beside `kept` to spare a second packing

  bool written_unseen() const { return version_counter.enabled() && version_counter.current_version() != version; }
  /// Is the memory behind `storage`, its home, still the one that it was made in?
  bool is_in_place(const c10::StorageImpl& storage) const { return allocation.may_be(memory::allocation_of(storage)); }
};
inline constexpr uint32_t kWritten = 1U << 31U;

/// A policy scope that is inside of no other.
struct Scope {
  std::vector<ValueId> anchors;  ///< what it reads from outside
  ValueId first_saved = 0;       ///< no saved tensor refers to what it made before
  ValueId end = kNone;           ///< behind what it made; kNone while it is open
};

/// What the replays of one operator cost.
struct ReplayCost {
  int64_t count = 0;
  double seconds = 0;
  int64_t bytes = 0;  ///< of results
};

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  std::recursive_timed_mutex mutex;
  Program program;
  std::vector<Value> values;

  /// The value that lives in `storage` now, or kNone.
  ValueId find(const c10::StorageImpl* storage) const;
  /// Makes `storage` the home of a new value.
  ValueId add_value(const StoragePtr& storage, const c10::TensorImpl& seen_through);
  /// `storage`, the home of `before` (kNone: of nothing yet), is written to: makes it the home of a new value and
  /// returns that. Tensors saved before see what is in the storage when they are asked for, as far as their version
  /// count allows: from now on they refer to the new value, which the caller must retain() or hold.
  ValueId supersede(ValueId before, const StoragePtr& storage);
  /// Makes `storage` the home of `id` again, after a replay.
  void rehome(ValueId id, const StoragePtr& storage);
  /// The contents of `id` are about to leave its home (written over, or the storage changes size).
  void unhome(ValueId id);
  /// What saved tensors that were bound to `id` refer to now.
  ValueId latest(ValueId id) const;
  /// The storage with the contents of `id`, or null where they must be recomputed.
  StoragePtr alive(ValueId id) const;
  /// The storage of `id` where that was emptied, or emptied and filled again, by other means than operators: what is
  /// there now is what plain's saved tensors would see. Null where it was not.
  StoragePtr emptied(ValueId id) const;
  /// After emptied(): was the storage filled again with the same contents? Then they are those of `id` from now on.
  bool is_restored(ValueId id);
  /// Do people write to such a tensor through a pointer? Inputs, masks, tables and what is computed from them; not
  /// parameters, views of those and activations, unless their memory was handed out. A look at a GPU's memory would
  /// take too long.
  bool may_change_unseen(ValueId id, const at::Tensor& tensor) const;
  /// Are the bits of the result those of every replay? Not those of a workspace, whose padding nobody fills.
  bool is_comparable(ValueId id) const;
  /// Has anybody been given the memory of `storage`, the home of `id`, as such?
  bool is_handed_out(ValueId id, const c10::StorageImpl& storage) const {
    return !storage.resizable() || values[id].lent;  // Python's .numpy() makes storages not resizable
  }
  /// The memory of `storage` is about to be given to somebody who may write to it, as by .numpy() and DLPack.
  void hand_out(const c10::StorageImpl& storage);
  /// `tensor.data = other` is about to happen. Plain's saved tensors are the very tensor and see the other contents;
  /// the tape's do not know which contents those are, so that asking for one of this tensor is an error from now on.
  void replace_data(const at::TensorBase& tensor);
  /// Was the data of `tensor` replaced after the moment `saved_at` of `saves`?
  bool is_replaced(const c10::TensorImpl* tensor, int64_t saved_at) const;
  /// alive() for a replay that reads it: null also where somebody holds the memory as such, and may have written to it
  /// since; the storage of a leaf that is_restored().
  StoragePtr readable(ValueId id);
  /// From now on the contents of `storage`, the home of `before`, are a leaf's: somebody holds the memory as such.
  /// Saved tensors refer to the leaf, as plain's would see what is written there.
  ValueId make_leaf(ValueId before, const StoragePtr& storage, const c10::TensorImpl& seen_through);
  /// Can a replay bring it back?
  bool recomputable(ValueId value) const { return values[value].producer != kNone && !values[value].raw; }
  /// Could it be brought back now? Not where its producer reads a leaf that is emptied: parameters that are sharded
  /// over processes are there while their own layer runs, forward and backward, and a replay for another layer comes at
  /// the wrong time.
  bool repeatable_now(ValueId id) const;
  /// Does anything but the tape need the contents where they are?
  bool is_in_use(ValueId id) const;
  /// Gives up the memory of `id`; it can be recomputed. The caller makes sure that only the tape holds it.
  void give_up(ValueId id);
  /// Gives it up like give_up(), and holds it packed from now on. False, and nothing has happened, if its contents
  /// cannot be packed.
  bool pack(ValueId id);
  /// From now on nobody reports writes: takes checksums of what is in a user's hands.
  void stop_watching();
  /// Holds the storage of a value that autograd just saved; queues it for dropping where its policy says so.
  void retain(ValueId id, const StoragePtr& storage);
  /// Compares the operation just recorded with the schedule's, and does what another plan wants where one is followed
  /// from now on.
  void follow_schedule();
  /// Are the operations so far the first ones of `graph`?
  bool begins_like(const Graph& graph) const;
  /// The same but for sizes?
  bool runs_operators_of(const Graph& graph) const { return compare_sizes(graph) != Sizes::kOther; }
  /// How many bytes the operations so far made, beside the first ones of `graph`: kOther if they are not the same
  /// operators, kLarger if some of their results are larger.
  enum class Sizes : uint8_t { kOther, kNotLarger, kLarger };
  Sizes compare_sizes(const Graph& graph) const;
  /// Queues a value for dropping as soon as only the tape holds it.
  void drop_when_idle(ValueId value) { drop_queue_.push_back(value); }
  /// Queues a value that stays: once only the tape holds it for replays, plain's account shall not have it.
  void uncount_when_idle(ValueId value) { leaf_queue_.push_back(value); }
  /// Makes the tape hold a leaf's storage, and queues it so.
  void hold_leaf(ValueId leaf, const StoragePtr& storage);
  /// Begins a policy scope; ends it.
  uint32_t open_scope();
  void close_scope(uint32_t scope) { scopes_[scope - 1].end = static_cast<ValueId>(values.size()); }
  /// `scope` reads `anchor`, which is from outside: makes the tape hold its storage until the last saved tensor of the
  /// scope is gone. (What needs it even then is recomputed from farther back.)
  void hold_anchor(uint32_t scope, ValueId anchor, const StoragePtr& storage);
  /// All saved tensors have asked for the value, and may do so again: queues it for what its plan or policy says.
  void put_away_again(ValueId value) { again_queue_.push_back(value); }
  /// Goes through the queues.
  void drop_idle();
  /// One saved tensor less refers to what was `bound` to it. It was unpacked last in round `asked_in`.
  void release_saved(ValueId bound, uint32_t asked_in);

  /// Releases everything that no saved tensor, replay or capture in progress can reach. Values still in a user's hands
  /// become leaves-to-be.
  void collect();
  /// The same before `leaf` is written to, but of values in a user's hands only those made of it become leaves-to-be:
  /// others stay recomputable, and need not be held where they are read.
  void collect_before_write(ValueId leaf);
  /// Does so only if it frees memory, and returns whether it did. With `spare_living`, values in a user's hands stay
  /// recomputable.
  bool collect_to_free(bool spare_living);
  /// Frees the generator states of operators that nothing can ask for any more, and returns their bytes.
  int64_t release_unused_generators();
  /// collect(), if enough has been let go of since the last time to make it worth it.
  void collect_if_due();

  /// Values that saved tensors refer to.
  int64_t live_values() const { return live_; }

  /// Bytes of the arrays and generator states.
  int64_t record_bytes() const;
  /// Checks the invariants of the arrays; throws InternalError. For tests and debugging: takes linear time.
  void validate() const;
  /// Shall every step do so when it ends? Only where the environment sets REMAT_VALIDATE, as the tests do.
  static bool validates_steps();

  /// From here on values and tensors belong to operators that are running.
  size_t captured_values = SIZE_MAX, captured_tensors = SIZE_MAX;
  memory::Ledger* ledger = nullptr;
  std::thread::id thread;                   ///< that records on it
  std::shared_ptr<const void> draws_watch;  ///< see watch_draws(): for as long as there may be replays
  std::shared_ptr<StepExtent> extent;       ///< of the step that writes it; null: of a policy's scope
  std::atomic<bool> closed{false};          ///< nothing more is recorded
  bool inherited = false;                   ///< written by the process that this one was forked from
  uint64_t step = 0;  ///< its number among all sessions' steps of the process, counted from 1; 0: a policy scope's tape
  bool verify = false;
  bool pack_values = true;
  bool meta = false;       ///< its values are tensors of the meta device, others are opaque
  Trace* trace = nullptr;  ///< told what happens
  Following following;     ///< of plans
  /// For lack of memory values in a user's hands became leaves: with more they could be dropped.
  bool forgot_living = false;
  int64_t evictions = 0;  ///< times that memory ran short and something was given up
  // Counts for the report.
  int64_t packs = 0, packed_bytes = 0;
  int64_t drops = 0, dropped_bytes = 0, saved_values = 0, saved_bytes = 0, replays = 0, adopted_bytes = 0;
  int64_t parameter_bytes = 0, gradient_bytes = 0;  ///< of the parameters read so far, and of what they had in grad()
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> parameters;  ///< the same
  int64_t saves = 0;                                                 ///< tensors that autograd has saved so far
  double replay_seconds = 0;
  ska::flat_hash_map<const OperatorInfo*, ReplayCost> replayed;

 private:
  ska::flat_hash_map<const c10::StorageImpl*, ValueId> by_storage_;
  /// Which values saved tensors, replays and captures in progress can reach, and with `living` those in a user's hands,
  /// but for those that were made of `leaf`; stamps their operations.
  std::vector<bool> reachable(bool living, uint32_t stamp, ValueId leaf = kNone);
  /// By value: whether operators made it of `leaf`, directly or not.
  std::vector<bool> made_of(ValueId leaf) const;
  void release_all_but(const std::vector<bool>& needed, uint32_t stamp);
  /// What the queues are for.
  void settle(ValueId id);
  /// Lets go of the storage, and takes it from plain's account if it is there and plain would free it now.
  static void release_kept(Value& value);
  /// Is the operation the one that `graph` has in its place?
  bool is_same_operator(size_t index, const Graph& graph) const;
  /// And of the same sizes?
  bool is_as_planned(size_t index, const Graph& graph) const;
  /// What the schedule wants to become of a saved value.
  void set_action(ValueId id);
  /// No saved tensor refers to the value any more.
  void let_go(ValueId id);
  /// Releases the scope's anchors if no saved tensor refers to what it made.
  void release_anchors(Scope& scope);
  /// Lets go of the contents for good. `for_replays`: the trace has them, plain's account does not.
  void release(ValueId id, bool for_replays);
  /// Plain would have freed it now. For the trace its bytes are there until no replay can need them.
  void leave_plain(Value& value) const;
  /// Plain would have freed it now.
  void forget_plain(const Value& value) const;

  friend class SavedTensor;

  int64_t live_ = 0;
  ska::flat_hash_map<const c10::TensorImpl*, int64_t> replaced_;  ///< tensors whose data was, and `saves` then
  std::vector<Scope> scopes_;                                     ///< by id, which begin at 1
  std::vector<ValueId> drop_queue_;
  std::vector<ValueId> leaf_queue_;
  std::vector<ValueId> again_queue_;
  size_t next_look_ = 0;
  const uint64_t watched_ends_ = memory::watched_ends();  ///< before the first leaf
  uint32_t released_since_collect_ = 0;
  bool released_since_look_ = false;  ///< at the generators' states
};

}  // namespace remat

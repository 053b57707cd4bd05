// src/tape/tape.h -- the record of a forward pass: which operator made which contents, from what.
//
//   program  the operators as they were called, in the order of execution
//   values   the contents that storages had, one after another, and where they are now
//
// and what holds them: saved tensors, policy scopes, plans. What no saved tensor can ever ask for is released by
// a collector.
//
// Thread-safety: everything below needs `mutex`, which is recursive because freeing or allocating tensors under it may
// come back here (reclaim). Operators are never run while it is held.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>
#include <c10/util/intrusive_ptr.h>

#include "tape/action_source.h"
#include "tape/collector.h"
#include "tape/kernel_times.h"
#include "tape/moves.h"
#include "tape/program.h"
#include "tape/replaced_data.h"
#include "tape/residency.h"
#include "tape/step_counts.h"
#include "tape/tape_mutex.h"

namespace remat {

class Recorder;
class StepExtent;
struct Contradiction;
class Trace;

/// The contents of `storage`, which no recorded operator had made, were read by the operator that was recorded next.
struct LeafRead {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  OperationId by = 0;
};

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  /// Of Tapes::make() alone, so that forks find it.
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  TapeMutex mutex;
  StepCounts counts;
  Program program;
  Residency values{counts};
  std::optional<Moves> moves;             ///< where the session has a file for them
  Trace* trace = nullptr;                 ///< writes the graph of the step; null: nobody does
  std::optional<KernelTimes> times;       ///< of a step that is traced on a device with streams
  std::shared_ptr<ActionSource> actions;  ///< the plan that the step follows; null: none

  /// From now on `now` is told what happens on the tape; null: nobody is.
  void set_trace(Trace* now);

  // Set when recording begins.

  std::thread::id thread;                   ///< that records on it
  std::shared_ptr<const void> draws_watch;  ///< see watch_draws(): for as long as there may be replays
  std::shared_ptr<StepExtent> extent;       ///< of the step that writes it; null: of a policy's scope
  std::function<void(std::string_view name)>
      before_collective;  ///< see Engine::before_collective(); empty: nothing is to be done
  uint64_t step = 0;  ///< its number among all sessions' steps of the process, counted from 1; 0: a policy scope's tape
  bool pack_values = true;
  bool meta = false;  ///< its values are tensors of the meta device, others are opaque

  std::atomic<bool> closed{false};         ///< nothing more is recorded
  std::atomic<Recorder*> writer{nullptr};  ///< of which operators are running that are written down
  bool inherited = false;                  ///< written by the process that this one was forked from
  std::atomic<int> policy_scopes{0};  ///< open ones that are recorded on it; without a step, recording ends with them
  /// That the step has read.
  ska::flat_hash_map<const c10::TensorImpl*, c10::weak_intrusive_ptr<c10::TensorImpl>> parameters;
  /// Of parameters that it has read and that were let_go() since.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> gradients_of_others;
  /// In the order of execution, where the step is traced: who reads a parameter belongs to its module.
  std::vector<LeafRead> leaf_reads;
  /// From where on, for lack of memory, values in a user's hands became leaves, or an operator's results: with more
  /// they could be evicted, and nothing follows from how the record differs from other steps'. kNoId: they did not.
  OperationId forgotten_from = kNoId;
  void note_forgotten() { forgotten_from = std::min(forgotten_from, static_cast<OperationId>(program.size())); }

  // Saved tensors. (REQUIRES of all: the value is recomputable when it is saved.)

  /// One saved tensor more refers to `id`, whose home is `storage`. Returns the round of the value in which it counts
  /// as unpacked: 0, or the present one where it is saved by a graph that backward makes while it goes through another.
  uint32_t add_saved(ValueId id, const StoragePtr& storage);
  /// It was unpacked. `again`: it may be once more, since its graph is retained.
  void note_unpacked(ValueId id, bool again);
  /// One saved tensor less refers to the value that was `bound` to it. It was unpacked last in round `unpacked_in`.
  void remove_saved(ValueId bound, uint32_t unpacked_in);
  /// Values that saved tensors refer to.
  int64_t live_values() const { return live_; }
  /// Nothing of an ended step asks for checksums on devices any more if no saved tensor is left.
  void release_checksums();
  /// Tensors that autograd has saved so far.
  int64_t saves = 0;

  // What is held, and for how long.

  /// Keeps the storage of a value that saved tensors refer to, and queues it for what its policy or plan says.
  void retain(ValueId id, const StoragePtr& storage);
  /// Keeps a leaf's storage. Once only the record holds it, plain's account shall not have it.
  void hold_leaf(ValueId leaf, const StoragePtr& storage);
  /// Begins a policy scope; ends it. Where autograd saved none of its values (frozen layers, an evaluation), what may
  /// be saved later is kept: to recompute it, values from outside would have to be held meanwhile.
  uint32_t open_scope();
  void close_scope(uint32_t id);
  /// `scope` reads `anchor`, which is from outside: keeps its storage until the last saved tensor of the scope is gone.
  /// (What needs it even then is recomputed from farther back.)
  void hold_anchor(uint32_t scope, ValueId anchor, const StoragePtr& storage);
  /// Evicts and packs what policies and plans want evicted or packed, where only the record holds it.
  void drop_idle();
  /// An operation was recorded: compares it with the plan's, and does what another plan wants where one is followed
  /// from now on.
  void follow_plan();

  // Writes that are no recorded operator's.

  /// `storage` is about to be written to.
  void before_write(const StoragePtr& storage);
  /// `storage` has been written to, by an operator that does not say so.
  void after_write(const StoragePtr& storage);
  /// An operator's call has done what its schema rules out: no replay runs that operator any more. Earlier calls may
  /// have done the same unseen: what is left of their results is held.
  void contradicted(const OperatorInfo& info, const std::vector<Contradiction>& contradictions);
  /// `tensor.data = other` is about to happen. Plain's saved tensors are the very tensor and see the other contents.
  /// Of an activation the record does not know which contents those are: asking for one of this tensor is an error from
  /// now on. A parameter that becomes empty is about to be freed, and may be filled again (DeepSpeed's ZeRO-3).
  void replace_data(const at::TensorBase& tensor, const at::TensorBase& other);
  /// Nobody but its user may have a reference to the parameter, not even a weak one.
  void let_go(const c10::TensorImpl& parameter);
  /// Was the data of the tensor replaced after the moment `saved_at` of `saves`?
  bool is_replaced(const c10::TensorImpl* tensor, const c10::VariableVersion& counter, int64_t saved_at) const {
    return replaced_.is_replaced(tensor, counter, saved_at);
  }
  /// Do people write to tensors of this kind through a pointer? Inputs, masks, tables and values computed from them,
  /// but not parameters, their views and activations, unless their memory was handed out. On the CPU alone: a look at a
  /// GPU's memory would take too long.
  bool may_change_unseen(ValueId id, const at::Tensor& tensor) const;
  /// Does a replay of it read a leaf whose contents are gone now? So it is with parameters that are sharded over
  /// processes: they are there while their own layers run, forward and backward. What an operator reads after that
  /// belongs to another layer, whose backward pass runs while they are gone.
  bool needs_lost_leaf(ValueId id);
  /// No replay makes it from now on: it is kept for replays that read it, in `storage`.
  void make_leaf(ValueId id, const StoragePtr& storage);
  /// The same for one that needs_lost_leaf(). Where plain does not save it, the record does not hold it either.
  void make_unrepeatable(ValueId id, const StoragePtr& storage);
  /// Autograd saves an unavailable leaf: replays may read it from now on.
  void hold_unavailable(ValueId id, const StoragePtr& storage);

  // Garbage collection: see Collector. These note from where on the record is another than with more memory.

  void collect() { collector_.collect(); }
  bool collect_to_free(bool spare_living);
  bool settle();
  int64_t release_unused_generators() { return collector_.release_unused_generators(); }
  /// Values and arguments from here on belong to operators that are running.
  void set_captured(size_t values_from, size_t tensors_from) {
    collector_.captured_values = values_from;
    collector_.captured_tensors = tensors_from;
  }

  /// Bytes of the record itself.
  int64_t record_bytes() const { return program.bytes() + values.bytes_of_arrays(); }
  /// Checks the invariants; throws InternalError. For tests and debugging: takes linear time.
  void validate() const;

 private:
  /// Of an autograd leaf, whose storage is the home of `id`, if of any.
  void replace_leaf(ValueId id, const c10::StorageImpl& before, const StoragePtr& after);
  /// Copies `leaf` where a replay may read it: it is about to be written to, or has been (`intact` is false).
  void save_leaf(ValueId leaf, bool intact);
  /// Has it ended, and is no saved tensor left?
  bool is_over() const { return closed && live_ == 0; }
  /// Only the record holds the value: evicts, packs or moves it, if its policy or plan says so.
  void apply_action(ValueId id);
  /// Takes what the plan says about a saved value.
  void take_action(ValueId id);
  /// No saved tensor refers to the value any more.
  void end_saved(ValueId id);
  /// Releases the scope's anchors if no saved tensor refers to the values that it made.
  void release_anchors(Scope& scope);

  int64_t live_ = 0;
  ReplacedData replaced_;
  std::vector<Scope> scopes_;  ///< by id, which begin at 1
  Collector collector_{program, values, scopes_};
  std::vector<ValueId> drop_queue_;           ///< to be evicted or packed as soon as only the record holds them
  std::vector<ValueId> leaf_queue_;           ///< that stay, and leave plain's account then
  std::vector<ValueId> again_queue_;          ///< that all saved tensors have unpacked, and may unpack again
  size_t next_look_ = 0;                      ///< in leaf_queue_
  uint64_t losses_ = memory::watched_ends();  ///< of leaves, when needs_lost_leaf() last looked at any
  uint32_t intact_ = 0;                       ///< stamps operators whose replays read no leaf that was lost by then
};

}  // namespace remat

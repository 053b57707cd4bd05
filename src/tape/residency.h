// src/tape/residency.h -- where the contents of a step's values are: alive, packed or gone, and every change of that.
//
// Rule 1. A value without producer is a *leaf*: parameters, inputs, and everything that was not recorded or cannot be
//         repeated exactly. Its storage is kept, because a replay may have to read it.
// Rule 2. A value with a producer can be recomputed. Its storage is kept only while something asks for that, and can be
//         evicted.
// Rule 3. What a factory made (empty, zeros, arange, randn ...), or fill_() or zero_() put into all of given memory, is
//         unread: kernels and users write to it through pointers, which nobody sees. Operators that overwrite all of it
//         are recorded. Where it is read as it is, it can be recomputed if its factory gave it these contents, and
//         otherwise becomes a leaf. A checksum tells, on the CPU; it is taken again when an operator has written to a
//         part, up to four times. What a factory left undefined (empty), and after that what it filled, can be
//         recomputed where operators have overwritten all that is read of it, slice by slice (coverage.h), and else
//         becomes a leaf.
// Rule 4. When a storage is written to, its old value no longer lives there: a leaf that a replay may still have to
//         read is copied first (Tape::before_write), any other loses its home.
//
// Not thread-safe: protected by the tape's mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include "tape/checksums.h"
#include "tape/step_counts.h"
#include "tape/stream_uses.h"
#include "tape/value.h"

namespace remat {

namespace memory {
class Ledger;
}

/// Is told what becomes of values, with the tape's mutex held: for the graph of the step.
class ResidencyObserver {
 public:
  /// `storage` holds a value that was saved.
  virtual void holds(ValueId value, const c10::StorageImpl& storage) = 0;
  /// The records hold so many bytes of tensors that plain has not: part of every prediction.
  virtual void held(int64_t bytes) = 0;
  /// `value` was written over: saved tensors see the new contents of its storage.
  virtual void superseded(ValueId value) = 0;
  /// Takes back a free that only plain's account knows: Ledger::forget_plain().
  virtual void forgotten(ValueId value, int64_t bytes) = 0;

 protected:
  ~ResidencyObserver() = default;
};

class Residency {
 public:
  explicit Residency(StepCounts& counts);
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  memory::Ledger* ledger = nullptr;   ///< that counts the device's memory, if any
  std::optional<c10::Device> device;  ///< that it is of: values on others are never evicted
  ResidencyObserver* observer = nullptr;
  bool verify = false;  ///< evicted contents leave a checksum, which is compared at once
  StreamUses streams;
  Checksums checksums;
  bool expect_emptied = true;  ///< leaves on devices may be emptied and filled again: a checksum is taken of each

  // Reading.

  /// Is it the step's device, whose memory is counted?
  bool is_on_device(c10::Device other) const { return !device || other == *device; }
  size_t size() const { return values_.size(); }
  const Value& operator[](ValueId id) const { return values_[id]; }
  /// The value that lives in `storage` now, or kNoId.
  ValueId find(const c10::StorageImpl* storage) const;
  /// What saved tensors that were bound to `id` refer to now.
  ValueId latest(ValueId id) const;
  /// The storage with the contents of `id`, or null where they must be recomputed.
  StoragePtr alive(ValueId id) const;
  /// The storage of `id` where that was emptied, or emptied and filled again, by other means than operators, or is
  /// another one than it was: its contents now are what plain's saved tensors would see. Null where it was not.
  StoragePtr emptied(ValueId id) const;
  /// Was this leaf emptied?
  bool is_emptied_leaf(ValueId id);
  /// alive() for a replay that reads it: null also where somebody may have written to the memory through a pointer. Of
  /// a leaf that is_restored() the storage.
  StoragePtr readable(ValueId id);
  /// After emptied(): was the storage filled again with the same contents? Then they are those of `id` from now on.
  bool is_restored(ValueId id);
  /// Was any leaf met that was emptied?
  bool emptied_leaves() const { return emptied_leaves_; }
  /// Are its contents those that its checksum was taken of, where one was? Of a device's nobody can say at once.
  bool is_as_watched(ValueId id) const;
  /// On a device: takes a checksum of `id`, which `producer` made and which may be evicted, while nobody has seen a
  /// device's kernel of that operator give the same bits twice.
  void watch_first(ValueId id, const OperatorInfo& producer);
  int64_t bytes_of_arrays() const;
  /// Throws InternalError where the table of homes has one that is none. For tests and debugging.
  void validate_homes() const;

  // Values come and change.

  /// Makes `storage` the home of a new leaf.
  ValueId add(const StoragePtr& storage, const c10::TensorImpl& seen_through);
  /// Makes `storage` the home of a new value: tensor `result` of operation `producer`, which is about to be recorded.
  /// `watch`: people may write to it through a pointer, where it needs no gradient.
  ValueId add_result(const at::Tensor& tensor, OperationId producer, uint32_t result, const OperatorInfo& info,
                     bool watch = true);
  /// `storage`, the home of `before` (kNoId: of nothing yet), was written to: makes it the home of a new leaf and
  /// returns that. Tensors saved before see the new contents when they are asked for, as far as their version count
  /// allows: from now on they refer to the new value, which the caller must make kept.
  ValueId supersede(ValueId before, const StoragePtr& storage);
  /// The same where the contents are what somebody may write through a pointer: saved tensors refer to the new leaf, as
  /// plain's would see what is written there.
  ValueId hand_over(ValueId before, const StoragePtr& storage, const c10::TensorImpl& seen_through);
  /// supersede()'s value is written tensor number `written` of operation `producer` (kNoId: of none that is recorded),
  /// seen through a tensor with that version counter.
  void set_writer(ValueId id, OperationId producer, uint32_t written, const c10::VariableVersion& version);
  /// What an operator that is recorded made in policy scope `scope`.
  void set_policy(ValueId id, uint32_t scope, bool drop) {
    Value::PolicyPlace& policy = values_[id].policy;
    policy.scope = scope;
    if (policy.retention != Retention::kPinned) policy.retention = drop ? Retention::kDrop : Retention::kByPlan;
  }
  /// Is it (`unread`) or is it no more a factory's, which operators may overwrite and which nobody has read?
  void set_unread_factory(ValueId id, bool unread);
  /// Compiled code has made it.
  void set_compiled(ValueId id) { values_[id].watch.access = PointerAccess::kCompiledCode; }
  /// An operator outside of the compiled code that made it reads it, without a gradient.
  void leave_compiled(ValueId id) { values_[id].watch.access = PointerAccess::kUsers; }
  /// Its factory has given every element of unread value `id` in `storage` a value.
  void note_filled(ValueId id, const c10::StorageImpl& storage);
  /// An unread value in `storage` is about to be read. Where it has the contents that its factory gave it, it is unread
  /// no more, since a replay can make it; true then.
  bool accept_filled(ValueId id, const c10::StorageImpl& storage);
  /// May an operator that writes to `tensor`, which looks at value `id`, be recorded? Not where that is a leaf, what a
  /// factory filled and somebody wrote to through a pointer, or undefined in part and read. `overwrites`: it overwrites
  /// all that the tensor reaches, and reads nothing of the storage.
  bool accept_write(ValueId id, const at::TensorBase& tensor, bool overwrites);
  /// A recorded operator has made `after` of `before`, in `storage`: what was filled is so still, and `strip`, if it
  /// has overwritten that.
  void note_written(ValueId before, ValueId after, const c10::StorageImpl& storage, const std::optional<Strip>& strip);
  /// Has every byte of `id` that the tensor reaches been given contents, as far as is known?
  bool is_defined(ValueId id, const c10::TensorImpl& seen_through) const {
    const Value& value = values_[id];
    return value.is_filled() || !value.coverage || value.coverage->covers(seen_through);
  }
  /// Has a value that accept_filled() accepted been written to through a pointer since?
  bool is_overwritten(ValueId id, const c10::StorageImpl& storage) const;
  /// No replay makes it any more, so it must stay: the caller makes it kept.
  void become_leaf(ValueId id);
  /// Its producer is forgotten.
  void forget_producer(ValueId id) {
    values_[id].producer = kNoId;
    values_[id].form.contents.reset();
  }
  /// The same, but nothing is held: the value is a leaf for as long as others hold its storage.
  void become_unavailable(ValueId id);
  /// An unavailable leaf in memory that its storage does not own.
  void become_externally_owned(ValueId id);
  /// In whose memory it is, as is_restored() needs to know.
  void watch_contents(ValueId id, const c10::StorageImpl& storage);
  void mark_parameter(ValueId id) { values_[id].traits.parameter = true; }
  void mark_packable(ValueId id, size_t element_bytes) {
    values_[id].form.element_bytes = static_cast<uint8_t>(element_bytes);
  }
  void pin(ValueId id) { values_[id].policy.retention = Retention::kPinned; }
  /// The version count went up by one, and the contents are what they were.
  void note_reshape(ValueId id) { ++values_[id].watch.version; }
  /// The memory of `storage` is about to be given to somebody who may write to it, as by .numpy() and DLPack.
  void hand_out(const c10::StorageImpl& storage);
  /// From now on nobody reports writes: takes checksums of contents that are in a user's hands.
  void stop_watching();
  /// Takes everything from it but its successor.
  void reset(ValueId id, std::vector<StoragePtr>& freed);

  // Who needs it.

  void clear_readers();
  void add_reader(ValueId id) { ++values_[id].needs.readers; }
  void remove_reader(ValueId id);
  void want(ValueId id) { ++values_[id].needs.wanted; }
  void stop_wanting(ValueId id);
  /// One saved tensor more refers to it, which will ask for it in this round (`now`) or in a later one.
  void add_saved(ValueId id, bool now);
  /// One less, which was to ask for it in this round (`pending`). True if it was the last.
  bool remove_saved(ValueId id, bool pending);
  /// One saved tensor has asked for it in this round. True if it was the last.
  bool note_unpacked(ValueId id);
  /// All saved tensors may ask for it again.
  void begin_round(ValueId id);
  /// `scope` reads it, and was made outside. True if that is new.
  bool add_anchor(ValueId id, uint32_t scope);
  /// True if no scope holds it any more.
  bool remove_anchor(ValueId id);
  void set_action(ValueId id, Action action) { values_[id].action = action; }

  // Contents come and go.

  /// The record holds `storage`, its home, from now on.
  void keep(ValueId id, const StoragePtr& storage);
  /// It has left its home (written over, or the storage changes size).
  void detach(ValueId id);
  /// Its contents can be read no more.
  void lose(ValueId id, Loss loss);
  /// Saved tensors see what comes into its home from now on; the contents until now are `copy` (null: lost), for
  /// replays alone.
  void move_to_copy(ValueId id, const StoragePtr& copy);
  /// The tensor of a leaf was given `storage` in place of its home, which is freed, and may be given the same contents
  /// again: see is_restored().
  void follow(ValueId leaf, const StoragePtr& storage);
  /// Leaves so far whose home was freed.
  uint64_t freed_homes() const { return freed_homes_; }
  /// Evicts its contents; the caller makes sure that only the record holds them.
  void evict(ValueId id);
  /// Evicts them, and holds them packed from now on. False, and nothing has happened, if they cannot be packed.
  bool pack(ValueId id);
  /// `contents` are its own, which is kept still: with the next eviction they alone have them.
  void hold(ValueId id, std::shared_ptr<HeldContents> contents);
  /// Its form has the contents no more. Returns the bytes that this freed.
  int64_t drop_form(ValueId id);
  /// A replay has made it. `storage` is its home from now on and, where it is saved, kept.
  void restore(ValueId id, const StoragePtr& storage);
  void count_recompute(ValueId id) { ++values_[id].needs.recompute_count; }
  /// It is in a user's or a replay's hands again, which plain's account has.
  void return_to_plain(ValueId id);
  /// Frees the contents for good. `for_replays`: the observer has them, plain's account does not.
  void release(ValueId id, bool for_replays);
  /// Plain would have freed it now. For the observer its bytes are there until no replay can need them.
  void leave_plain(ValueId id);

 private:
  friend class ResidencyInAnyState;  ///< of the tests: makes values of all states
  /// May an operator that overwrites part of `storage`, which a factory left undefined, be recorded?
  bool accept_undefined(ValueId id, const c10::StorageImpl& storage) const;
  /// The contents of `storage`, as it is now, are those of the value.
  void set_home(ValueId id, const StoragePtr& storage);
  /// Makes `storage` its home again.
  void attach(ValueId id, const StoragePtr& storage);
  void move_saved(ValueId from, ValueId to);
  /// Lets go of the storage without telling plain's account what it does not have.
  void release_kept(Value& value);
  void forget_plain(const Value& value) const;

  StepCounts& counts_;
  uint64_t freed_homes_ = 0;
  bool emptied_leaves_ = false;
  std::vector<Value> values_;
  ska::flat_hash_map<const c10::StorageImpl*, ValueId> by_storage_;
};

}  // namespace remat

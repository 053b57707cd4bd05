// src/tape/value.h -- what a storage held at one time, and what the record knows about it.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <remat/plan.h>

#include "device/allocation.h"
#include "memory/storage_owners.h"
#include "tape/coverage.h"
#include "tape/held_contents.h"
#include "tape/program.h"

namespace remat {

/// Where the first contents of a value come from, and whether the record can give them again.
enum class Origin : uint8_t {
  kComputed,         ///< of an operator, or it is a leaf whose memory the record holds
  kUndefined,        ///< of a factory that defines nothing (empty), or that nobody has looked at: not yet readable
  kFilled,           ///< of a factory that has defined every element; a checksum was taken then. Not read so far
  kFilledAndRead,    ///< the same, read since: replays make it again by its factory
  kUnavailable,      ///< a leaf for which nothing is held: operators that read it are not recorded
  kExternallyOwned,  ///< the same, in memory that its storage does not own: it may be gone before replays
};

/// Who may write to it without an operator.
enum class PointerAccess : uint8_t {
  kNobody,
  kUsers,         ///< a result without a gradient, to which people may have a pointer
  kCompiledCode,  ///< compiled code made it, and nothing else has read it: people have no pointer to it
};

/// Was its memory given to somebody to read and write through a pointer (DLPack, .numpy())?
enum class Exported : uint8_t { kNo, kNow, kBeforeEviction };

/// Why a leaf's contents cannot be read any more.
enum class Loss : uint8_t {
  kIntact,
  kWrittenUnseen,  ///< its version count went up, and no operator that remat saw wrote to it
  kNoRoom,         ///< an operator wrote to it, and there was no memory for a copy
  kEmptied,        ///< its storage was given other memory, with other contents
};

/// Where the account of plain PyTorch's memory differs from what is alive.
enum class PlainAccount : uint8_t {
  kSame,         ///< plain holds the value's bytes exactly while they are alive here
  kPlainOnly,    ///< the value is saved and was evicted: plain would still hold it
  kReplaysOnly,  ///< plain has freed it: it is held for replays, or was evicted since
};

/// What its policy says of it.
enum class Retention : uint8_t {
  kByPlan,  ///< nothing: it is kept or evicted by the plan, or under pressure
  kDrop,    ///< evicted as soon as only the record holds it
  kPinned,  ///< never evicted: keep(), what makes a replay shorter, another device's
};

/// Changed by Residency alone, whose rules are in value_rules.h.
struct Value {
  // What it is. Constant from when it is there.
  struct Traits {
    bool workspace : 1 = false;  ///< has padding that no kernel fills: its bits may differ from call to call
    bool parameter : 1 = false;  ///< a leaf of autograd's graphs that needs a gradient
    bool elsewhere : 1 = false;  ///< on another device than the step's, whose account has nothing of it
  };
  int64_t bytes = 0;
  int64_t extent = 0;            ///< bytes that its producer's tensor reaches over; the others are undefined
  OperationId producer = kNoId;  ///< kNoId: a leaf
  uint32_t result = 0;           ///< which tensor of the producer: a result, or kWritten + index in its written tensors
  Traits traits;
  static constexpr uint32_t kWritten = 1U << 31U;

  // Its contents.
  struct Home {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage{StoragePtr()};  ///< that they live in, while it is alive
    memory::Allocation allocation;  ///< behind it: another one means that the storage was emptied since
    std::shared_ptr<const memory::LastContents> last_contents;  ///< of a leaf's allocation, where its end is seen
    enum class Kind : uint8_t { kOwn, kFollowed };
    Loss loss = Loss::kIntact;  ///< of a leaf's contents
    Kind kind = Kind::kOwn;     ///< kFollowed: of a tensor that was given other memory; the checksum is of the contents
  };
  /// What tells of writes that no operator did.
  struct WriteWatch {
    c10::VariableVersion counter{c10::VariableVersion::DISABLED};  ///< of the tensor last seen on the home ...
    uint32_t version = 0;  ///< ... and its count: a different one means an unseen write
    PointerAccess access = PointerAccess::kNobody;
    Exported exported = Exported::kNo;
    uint64_t checksum = 0;  ///< of the contents when filled, evicted (verify mode) or last watched; 0: none
  };
  struct HeldForm {
    std::shared_ptr<HeldContents> contents;  ///< instead of a replay, or beside `kept`, for the next eviction
    uint8_t element_bytes = 0;               ///< of a value that may be packed; 0: it cannot be

    bool is_packed() const { return contents != nullptr && contents->form() == Form::kPacked; }
  };
  Origin origin = Origin::kComputed;
  PlainAccount account = PlainAccount::kSame;
  ValueId successor = kNoId;  ///< what an in-place write made of it, where saved tensors referred to it
  /// What operators have overwritten, slice by slice, where the rest is a factory's; else null.
  std::shared_ptr<const Coverage> coverage;
  Home home;
  StoragePtr kept;  ///< the record's own reference; contents held only here can be evicted
  HeldForm form;
  WriteWatch watch;

  // Who needs it, and what becomes of it.
  struct Needs {
    uint32_t saved = 0;            ///< saved tensors that refer to it
    uint32_t pending = 0;          ///< of those, not unpacked in this round
    uint32_t round = 1;            ///< one more each time when all have been unpacked and their graph was retained
    uint32_t readers = 0;          ///< recorded operations that read it
    uint32_t wanted = 0;           ///< replays in progress that will read it: evicted last
    uint32_t recompute_count = 0;  ///< times that replays have made it in this round
    uint32_t held_for = 0;         ///< policy scopes that read it from outside and whose replays may need it: it stays
  };
  struct PolicyPlace {
    uint32_t scope = 0;      ///< the outermost policy scope that it was produced in; 0: none
    uint32_t anchor_of = 0;  ///< the last policy scope that read it from outside; 0: none. No policy drops it
    Retention retention = Retention::kByPlan;
  };
  Needs needs;
  PolicyPlace policy;
  Action action;  ///< by the plan that the step follows

  /// Does a saved tensor, a recorded operation, a policy scope or a replay in progress need it?
  bool is_needed() const { return needs.saved > 0 || needs.readers > 0 || needs.held_for > 0 || needs.wanted > 0; }
  bool is_leaf() const { return producer == kNoId; }
  /// Bytes of the step's device.
  int64_t counted_bytes() const { return traits.elsewhere ? 0 : bytes; }
  /// Is it what a factory made, not read so far? Operators may overwrite it; read as it is, it may become a leaf.
  bool is_unread_factory() const { return origin == Origin::kUndefined || origin == Origin::kFilled; }
  /// Has its factory defined every element, or operators that wrote there since?
  bool is_filled() const { return origin == Origin::kFilled || origin == Origin::kFilledAndRead; }
  /// Is it a leaf for which nothing is held?
  bool is_unavailable() const { return origin == Origin::kUnavailable || origin == Origin::kExternallyOwned; }
  /// Can a replay recompute it?
  bool is_recomputable() const { return !is_leaf() && !is_unread_factory(); }
  /// Is it what a factory made, in part at least, whatever operators have written over?
  bool is_of_factory() const { return is_unread_factory() || is_filled() || coverage; }
  bool is_pinned() const { return policy.retention == Retention::kPinned; }
  /// Are the bits of the contents those of every replay?
  bool is_comparable() const { return is_leaf() || !traits.workspace; }
  bool is_written_unseen() const { return watch.counter.enabled() && watch.counter.current_version() != watch.version; }
  /// Is the memory behind `storage`, its home, still the one that it was made in?
  bool is_in_place(const c10::StorageImpl& storage) const {
    if (home.last_contents != nullptr && home.last_contents->has_ended()) return false;  // devices reuse addresses too
    return home.allocation.may_be(memory::allocation_of(storage));
  }
  /// Has somebody been given the memory of `storage`, its home, to read and write through a pointer?
  bool is_exported(const c10::StorageImpl& storage) const {
    return !storage.resizable() || watch.exported == Exported::kNow;  // Python's .numpy() makes storages not resizable
  }
  /// Does anything but the record need the contents where they are?
  bool is_in_use() const { return kept && owners(kept) > 1; }
  /// Does anybody but the record have a tensor of it?
  bool is_in_hands() const { return kept ? is_in_use() : home.storage.use_count() > 0; }
};

}  // namespace remat

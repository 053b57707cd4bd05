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
#include "tape/packing.h"
#include "tape/program.h"

namespace remat {

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

/// Changed by Residency alone.
struct Value {
  // What it is.
  int64_t bytes = 0;
  int64_t extent = 0;            ///< bytes that its producer's tensor reaches over; the others are undefined
  OperationId producer = kNone;  ///< kNone: a leaf
  uint32_t result = 0;           ///< which tensor of the producer: a result, or kWritten + index in its written tensors
  bool raw = false;              ///< a factory's result: operators may overwrite it; read as it is, it becomes a leaf
  bool filled = false;           ///< a factory's result or what operators wrote there; `checksum` was taken then
  uint8_t writes = 0;            ///< recorded operators that have written to what a factory filled
  bool watched = false;          ///< a result without gradient, which people may write to through a pointer
  bool compiled = false;         ///< made by compiled code, and nothing else has read it: people have no pointer to it
  bool workspace = false;        ///< has padding that no kernel fills: its bits may differ from call to call
  bool unheld = false;           ///< a leaf for which nothing is held: operators that read it are not recorded
  bool borrowed = false;         ///< a leaf in memory that its storage does not own: it may be gone before replays
  bool parameter = false;        ///< a leaf of autograd's graphs that needs a gradient
  bool elsewhere = false;        ///< on another device than the step's, whose account has nothing of it
  uint8_t element_bytes = 0;     ///< of a value that may be packed; 0: it cannot be
  ValueId successor = kNone;     ///< what an in-place write made of it, where saved tensors referred to it
  /// What operators have overwritten, slice by slice, where the rest is a factory's; else null.
  std::shared_ptr<const Coverage> coverage;
  static constexpr uint32_t kWritten = 1U << 31U;

  // Where its contents are.
  c10::weak_intrusive_ptr<c10::StorageImpl> home{StoragePtr()};  ///< the storage they live in, while that is alive
  StoragePtr kept;  ///< the record's own reference; contents held only here can be evicted
  std::shared_ptr<const Packed>
      packed;                     ///< the contents: instead of a replay, or beside `kept` to spare a second packing
  memory::Allocation allocation;  ///< behind the home: another one means that the storage was emptied since
  std::shared_ptr<const memory::LastContents> last_contents;  ///< of a leaf's allocation, where its end is seen
  bool followed = false;  ///< its home is that of a tensor which was given other memory; `checksum` is of the contents
  c10::VariableVersion version_counter{c10::VariableVersion::DISABLED};  ///< of the tensor last seen on the home ...
  uint32_t version = 0;             ///< ... and its count: a different one means an unseen write
  uint64_t checksum = 0;            ///< of the contents when filled, evicted (verify mode) or last watched; 0: none
  bool lent = false;                ///< somebody may write to its home through a pointer (DLPack)
  bool evicted_while_lent = false;  ///< the same when it was evicted
  Loss loss = Loss::kIntact;        ///< of a leaf's contents
  PlainAccount account = PlainAccount::kSame;

  // Who needs it.
  uint32_t saved = 0;      ///< saved tensors that refer to it
  uint32_t pending = 0;    ///< of those, not unpacked in this round
  uint32_t round = 1;      ///< one more each time when all have been unpacked and their graph was retained
  uint32_t readers = 0;    ///< recorded operations that read it
  uint32_t wanted = 0;     ///< replays in progress that will read it: evicted last
  uint32_t scope = 0;      ///< the outermost policy scope that it was produced in; 0: none
  uint32_t anchor_of = 0;  ///< the last policy scope that read it from outside; 0: none. No policy drops it
  uint32_t held_for = 0;   ///< policy scopes that read it from outside and whose replays may need it: it stays
  bool pinned = false;     ///< never evicted: keep(), or the statistics of a batch normalization

  // What becomes of it.
  bool drop = false;  ///< by its policy: evicted as soon as only the record holds it
  Action action;      ///< by the plan that the step follows
  uint32_t made = 0;  ///< times that replays have made it in this round

  /// Does a saved tensor, a recorded operation, a policy scope or a replay in progress need it?
  bool needed() const { return saved > 0 || readers > 0 || held_for > 0 || wanted > 0; }
  /// Bytes of the step's device.
  int64_t counted_bytes() const { return elsewhere ? 0 : bytes; }
  /// Can a replay recompute it?
  bool recomputable() const { return producer != kNone && !raw; }
  /// Is it what a factory made, in part at least, whatever operators have written over?
  bool is_of_factory() const { return raw || filled || coverage; }
  /// Are the bits of the contents those of every replay?
  bool comparable() const { return producer == kNone || !workspace; }
  bool written_unseen() const { return version_counter.enabled() && version_counter.current_version() != version; }
  /// Is the memory behind `storage`, its home, still the one that it was made in?
  bool is_in_place(const c10::StorageImpl& storage) const {
    if (last_contents != nullptr && last_contents->has_ended()) return false;  // devices reuse addresses too
    return allocation.may_be(memory::allocation_of(storage));
  }
  /// Has somebody been given the memory of `storage`, its home, to read and write through a pointer?
  bool is_handed_out(const c10::StorageImpl& storage) const {
    return !storage.resizable() || lent;  // Python's .numpy() makes storages not resizable
  }
  /// Does anything but the record need the contents where they are?
  bool in_use() const { return kept && owners(kept) > 1; }
  /// Does anybody but the record have a tensor of it?
  bool in_hands() const { return kept ? in_use() : home.use_count() > 0; }
};

}  // namespace remat

// src/tape/call.h -- one call of an operator, as an observer saw it: plain data, which CallWriter writes on a tape.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "tape/coverage.h"
#include "tape/program.h"

namespace remat {

/// A tensor that autograd saved while the operator that made it may still be running.
class UnboundSave {
 public:
  /// Called when that operator has ended. REQUIRES: tape's mutex.
  virtual void bind() = 0;

 protected:
  ~UnboundSave() = default;
};

/// A call that is about to run.
struct CallSite {
  const OperatorInfo* info = nullptr;
  c10::ArrayRef<const c10::IValue> inputs;  ///< valid while the call begins
  bool grad_mode = true;
  bool below_autograd = false;   ///< autograd's kernels are left out
  bool below_views = false;      ///< those for views and writes in place are
  bool under_mode = false;       ///< a dispatch mode may give other results than the operator
  bool several_threads = false;  ///< others run operators too: they would see the settings that a replay restores
  /// Of the generator that it may draw from: without a state where it draws from nothing. nullopt: that cannot be told.
  std::optional<GeneratorRecord> generator;
  bool no_room_for_generator = false;
};

/// What a call has done that its operator's schema rules out.
struct Contradiction {
  StoragePtr storage;  ///< of an input
  bool changed;        ///< it has other contents; else a result looks at it
};

/// A call that has run.
struct CallEnd {
  c10::ArrayRef<const c10::IValue> outputs;  ///< valid while the call ends
  bool failed = false;                       ///< by an exception
  bool alone = true;                         ///< nobody else can have drawn from its generators meanwhile
  uint64_t drawn = 0;                        ///< checksum of its generator's state now
  bool several_threads = false;              ///< as of CallSite
  bool evicted_by_policy = false;            ///< its policy has its results evicted
  float seconds = 0;
  std::optional<c10::Event> ended;  ///< on the device, where its operators are timed
  std::vector<Contradiction> contradictions;
};

/// A call that is running, and what the tape knows of it.
struct Call {
  struct Write {
    StoragePtr storage;
    ValueId before = kNoId;
    c10::VariableVersion version_counter{c10::VariableVersion::DISABLED};
    uint32_t version = 0;        ///< before the operator ran
    std::optional<Strip> strip;  ///< that the operator overwrites, where the other bytes may be undefined
    bool whole = false;          ///< the operator overwrites all of the storage
  };
  const OperatorInfo* info = nullptr;
  Operation operation;
  size_t values = 0;            ///< on the tape before it
  Program::Mark before, after;  ///< the tape's arrays around its arguments
  std::vector<Write> writes;
  std::vector<const c10::StorageImpl*> unrecorded;  ///< storages that it writes to while it is not repeatable
  std::vector<at::Tensor> communicated;             ///< that a collective writes to
  std::vector<UnboundSave*> saved;
  /// Leaves that it reads: unless it saves them, its results are unavailable leaves too.
  std::vector<ValueId> unavailable;
  bool updates_statistics = false;
  bool repeatable = true;               ///< false: its results are leaves
  bool draws_are_uncertain = false;     ///< it may turn out to have drawn from nothing, or from elsewhere
  bool reads = false;                   ///< has an input with contents
  bool scalar_of_default_type = false;  ///< has a floating-point number, and no floating-point tensor
  bool inside_wrapper = false;  ///< below autograd, for a tensor that wraps others: nothing says who needs a gradient
  std::optional<c10::Event> began;  ///< on the device, where its operators are timed

  /// A factory, or a fill of all of given memory: kernels and users write to its result through pointers. Not a
  /// random fill: dropout's mask.
  bool makes_unread_factory() const {
    if (info->blank) return false;
    if (info->factory || writes.empty()) return info->factory || !reads;
    return !reads && !info->random && std::ranges::all_of(writes, [](const Write& write) { return write.whole; });
  }
  bool writes_unrecorded(const c10::StorageImpl* storage) const {
    return std::ranges::find(unrecorded, storage) != unrecorded.end();
  }
  bool writes_to(const c10::StorageImpl* storage) const {
    return std::ranges::any_of(writes, [&](const Write& write) { return write.storage.get() == storage; });
  }
};

}  // namespace remat

// src/tape/trace.h -- writes a step's Graph while the step runs.
//
// Two sources: the allocator tells every block that comes and goes, the tape tells what operators ran and what became
// of saved values. Only what is in plain's account counts (memory::FrozenPlain), so that the graph is that of plain
// also where the step ran under pressure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/util/flat_hash_map.h>
#include <remat/graph.h>

#include "memory/allocation_observer.h"
#include "tape/allocation_log.h"
#include "tape/program.h"
#include "tape/residency.h"
#include "util/mutex.h"

namespace remat {

/// One step of one thread. Thread-safe: other threads' allocations may come in at any time.
class Trace final : public memory::AllocationObserver, public ResidencyObserver {
 public:
  /// Where steps that begin on this thread put their allocations when they end; null: nobody wants them. See
  /// AllocationNotes.
  using LastAllocations = std::shared_ptr<std::optional<StepAllocations>>;
  static LastAllocations& last_allocations();

  Trace();
  ~Trace() override;

  void allocated(const void* data, int64_t bytes, bool plain) noexcept override;
  void freed(const void* data, int64_t bytes, bool plain) noexcept override;
  void freed_elsewhere(const void* data, int64_t bytes, bool plain) noexcept override;

  // The rest is called with the tape's mutex held.

  /// An operator is about to run. Calls nest.
  void operator_begins();
  /// It has run, and is `program[index]`.
  void operator_ended(const Program& program, const Residency& values, OperationId index);
  /// It has run, and was not recorded.
  void operator_skipped();
  void holds(ValueId value, const c10::StorageImpl& storage) override;
  void held(int64_t bytes) override;
  /// Looks for saved values that nobody else holds any more. `between_frees`: while things are let go of, in any order.
  void find_idle(const Residency& values, bool between_frees = false);
  void used(ValueId value);
  /// Only saved tensors hold it once more, which have all asked for it and may do so again.
  void idle_again(const Residency& values, ValueId value);
  /// On the meta device kernels are made of other operators, whose results the real ones do not have: from the
  /// beginning of a kernel to its end only what remains of it counts. Calls nest.
  void kernel_begins();
  void kernel_ends();
  void superseded(ValueId value) override;
  /// A parameter is updated in the middle of backward; it has been. What came and stays, an optimizer's state, is there
  /// before later steps begin: it counts as part of the baseline.
  void update_begins();
  void update_ends();
  /// Plain would have `bytes` more for a moment, and this step has not: see Ledger::plain_rises(). If it has
  /// them nevertheless, `input` is what would have been written over: its bytes are gone now, and not when they are
  /// freed.
  void reused(int64_t bytes, const void* input);
  void forgotten(ValueId value, int64_t bytes) override;

  /// The graph of the step, which is over. May be called once. Allocations are complete when the record has let go of
  /// what it held, and handed over when this object ends.
  Graph take(int64_t baseline_bytes, double step_seconds);

 private:
  enum class Stage : uint8_t { kUnsaved, kSaved, kIdle, kUsed, kFreed };
  struct Window {
    int64_t begin = 0, peak = 0;
  };
  /// What the graph had when it was taken.
  struct Ended {
    size_t values = 0, event = 0;
  };

  void change(int64_t bytes) REMAT_REQUIRES(mutex_);
  /// Memory is about to rise, or something happens that has its place: what comes later is told apart from what came
  /// before.
  void rises() REMAT_REQUIRES(mutex_);
  void add(GraphEvent::Kind kind, int32_t index) REMAT_REQUIRES(mutex_);
  /// While memory only falls, the order of things says nothing about the step: autograd frees many values at once, in
  /// that of their addresses. So that each run of a step writes one graph, theirs is made to be: what became idle, by
  /// ids; what belongs to no saved value; the values that are freed, by ids.
  void add_in_fall(GraphEvent::Kind kind, int32_t index) REMAT_REQUIRES(mutex_);
  void release(ValueId value) REMAT_REQUIRES(mutex_);
  size_t last_event() const REMAT_REQUIRES(mutex_) { return ended_ ? ended_->event : graph_.events.size() - 1; }
  void put_away(const Residency& values, ValueId id, bool between_frees) REMAT_REQUIRES(mutex_);

  Mutex mutex_;
  Graph graph_ REMAT_GUARDED_BY(mutex_);
  size_t top_ REMAT_GUARDED_BY(mutex_) = 0;              ///< the event since which memory has only fallen
  size_t fall_ REMAT_GUARDED_BY(mutex_) = 0;             ///< it, or the last of those that became idle since
  int64_t fallen_ REMAT_GUARDED_BY(mutex_) = 0;          ///< by what belongs to no saved value
  std::vector<Stage> stages_ REMAT_GUARDED_BY(mutex_);   ///< by value
  std::vector<ValueId> saved_ REMAT_GUARDED_BY(mutex_);  ///< that somebody else holds still
  ska::flat_hash_map<const void*, ValueId> homes_ REMAT_GUARDED_BY(mutex_);
  std::vector<Window> windows_ REMAT_GUARDED_BY(mutex_);
  int64_t level_ REMAT_GUARDED_BY(mutex_) = 0;
  int kernels_ REMAT_GUARDED_BY(mutex_) = 0;
  int64_t withheld_ REMAT_GUARDED_BY(mutex_) = 0;              ///< changes since the outermost of them began
  std::optional<GraphEvent> update_ REMAT_GUARDED_BY(mutex_);  ///< changes since an update began
  const void* written_over_ REMAT_GUARDED_BY(mutex_) = nullptr;
  int64_t came_to_stay_ REMAT_GUARDED_BY(mutex_) = 0;  ///< in updates
  const LastAllocations last_allocations_ = last_allocations();
  std::unique_ptr<AllocationLog> log_ REMAT_GUARDED_BY(mutex_);  ///< for them
  std::optional<Ended> ended_ REMAT_GUARDED_BY(mutex_);          ///< but for the log
};

}  // namespace remat

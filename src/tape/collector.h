// src/tape/collector.h -- garbage collection of a tape, by a mark and sweep over its arrays: operations that no saved
// tensor needs any more go, and their values become leaves.
//
// Not thread-safe: protected by the tape's mutex.
#pragma once

#include <cstdint>
#include <vector>

#include "tape/program.h"
#include "tape/residency.h"

namespace remat {

/// A policy scope that is inside of no other.
struct Scope {
  std::vector<ValueId> anchors;  ///< values from outside that its operators read
  ValueId first_saved = 0;       ///< no saved tensor refers to values that it made before this one
  ValueId end = kNoId;           ///< behind the values that it made; kNoId while it is open
};

class Collector {
 public:
  Collector(Program& program, Residency& values, std::vector<Scope>& scopes)
      : program_(program), values_(values), scopes_(scopes) {}

  /// Places from here on belong to operators that are running.
  size_t captured_values = SIZE_MAX, captured_tensors = SIZE_MAX;

  /// No saved tensor refers to some value any more.
  void note_released() {
    ++released_since_collect_;
    released_since_look_ = true;
  }

  /// Releases everything that no saved tensor, replay or capture in progress can reach. Values still in a user's hands
  /// become leaves when they are read next.
  void collect();
  /// collect(), if so much has been released that it is worth it.
  void collect_if_due();
  /// Before an operator is recorded: collects where values in a user's hands stay recomputable, if so much has been
  /// recorded. A step that is `traced` is spared, but where layers rebuild their activations.
  void collect_while_recording(bool traced);
  /// collect() before `leaf` is written to, but of values in a user's hands only those made of it are released: others
  /// stay recomputable, and need not be held where they are read.
  void collect_before_write(ValueId leaf);
  /// collect(), only if it frees memory; returns whether it did. With `spare_living`, values in a user's hands stay
  /// recomputable.
  bool collect_to_free(bool spare_living);
  /// Frees what is kept to recompute values that are there: they become leaves. Returns whether that was anything.
  bool settle();
  /// Frees the generator states of operators that nothing can ask for any more, and returns their bytes.
  int64_t release_unused_generators();
  /// Forgets an operation whose results nothing reads, and the leaves that it alone has read.
  void forget_unread(OperationId id);

 private:
  /// How much must have been released or recorded since the last collection to make one worth it: it looks at all that
  /// was there then, and at the arrays. `left`: operations that it left. `rebuilding`: reversible layers and
  /// hand-written checkpoints rebuild activations inside of a backward, and free them at once.
  size_t threshold(bool rebuilding, size_t left) const {
    return rebuilding ? values_.size() / 256 : 32 + left + values_.size() / 64;
  }
  void collect_unreachable();
  /// Which values saved tensors, replays and captures in progress can reach, and with `living` those in a user's hands,
  /// but for those that were made of `leaf`; stamps their operations. With `settles`, what is there needs nothing.
  std::vector<bool> reachable(bool living, uint32_t stamp, ValueId leaf = kNoId, bool settles = false);
  /// By value: whether operators made it of `leaf`, directly or not.
  std::vector<bool> made_of(ValueId leaf) const;
  /// Would release_all_but() free memory that the record alone holds?
  bool would_free(const std::vector<bool>& needed, uint32_t stamp) const;
  /// release_all_but(), where that frees such memory; returns whether it did.
  bool free_all_but(const std::vector<bool>& needed, uint32_t stamp);
  void release_all_but(const std::vector<bool>& needed, uint32_t stamp);

  Program& program_;
  Residency& values_;
  std::vector<Scope>& scopes_;
  uint32_t released_since_collect_ = 0;
  size_t reachable_ = 0;     ///< operations that the last collection left
  size_t collected_at_ = 0;  ///< operations that had been recorded then
  /// The same of the last collect(). Those while operators are recorded do not count: a step that is traced has none,
  /// and shall hold as much in its backward pass as one that is not.
  size_t left_by_collect_ = 0;
  bool released_since_look_ = false;  ///< at the generators' states
};

}  // namespace remat

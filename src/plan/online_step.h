// src/plan/online_step.h -- a step under the online policy of src/run/eviction.cpp, on the graph.
//
// A change there is a change here. What differs: the graph tells how far memory rises between two events, not when, so
// all that is needed until the next event is given up at once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/planners.h"
#include "plan/replay_walk.h"

namespace remat::planners {

class OnlineStep {
 public:
  OnlineStep(const Graph& graph, PlannerOptions options);

  /// What became of each value where no more than `limit` bytes were to be had, baseline included. What was given up
  /// after replays had made it so many times is held from the next time on.
  Actions run(int64_t limit);
  /// The last run replayed so much that it let the limit go.
  bool gave_up() const;
  /// The most that was alive in the last run, in bytes: more than the limit where nothing was left to give up.
  int64_t peak_bytes() const { return peak_; }

 private:
  /// One way to free memory.
  struct Option {
    enum class Kind : uint8_t { kDrop, kPack, kDropPacked };
    Kind kind = Kind::kDrop;
    int32_t value = -1;
  };

  void put_away(int32_t value, int32_t uses);
  void use(int32_t value);
  void free(int32_t value);
  void unpack(int32_t value);
  void replay(int32_t target);
  void run_operator(int32_t index, int32_t target);
  void end_read(int32_t value);
  bool is_there(int32_t value) const { return present_[value] || transient_[value]; }

  void make_room(int64_t bytes);
  void evict(int64_t bytes);
  std::vector<Option> options() const;
  int64_t take(const Option& option);
  double price(const Option& option);
  double walk(int32_t value, bool pay, bool packed_too = false);

  const Graph& graph_;
  const bool pack_;
  std::vector<int32_t> returning_;  ///< values that may be away: those that a policy drops, too
  std::vector<bool> saved_;
  std::vector<int32_t> uses_after_;  ///< by event that puts a value away: its uses until the next that does

  // Of the run in progress.
  Actions actions_;
  int64_t limit_ = 0, level_ = 0, peak_ = 0, replays_ = 0, drops_ = 0;
  std::vector<int32_t> in_use_;  ///< a node of backward has them in its hands
  std::vector<bool> idle_;       ///< only saved tensors hold it
  std::vector<bool> present_;    ///< its contents are alive, or a saved tensor's
  std::vector<bool> transient_;  ///< its contents are a replay's
  std::vector<bool> has_bits_;   ///< held packed
  std::vector<int32_t> made_;    ///< times that replays have made it since it was put away
  std::vector<int32_t> uses_;    ///< to come until the value is put away again
  ReplayWalk replay_;
  std::vector<uint32_t> visits_;  ///< operators: the last price that came by
  uint32_t visit_ = 0;
  uint32_t paid_ = 0;  ///< the mark of operators that replays will run anyway
  std::vector<int32_t> stack_;
  std::vector<std::pair<int32_t, uint32_t>> seen_;
};

/// The smallest limit in bytes that the policy keeps, to a 256th of plain's activation peak: a budget that sessions can
/// do with where they have no plan.
int64_t smallest_online_limit(const Graph& graph, PlannerOptions options);

}  // namespace remat::planners

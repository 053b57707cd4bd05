// src/session/plan_follower.h -- which operator of a schedule each operator of a step stands for, so that a plan serves
// steps of other sizes, and with other operators in some places.
//
// A step stays with its schedule operator by operator, by name and number of results: one comparison for each. Where
// the sizes are others, a schedule for those is asked for. Where the operator is another, the step may be another known
// one; else the schedule is taken up again behind the difference, where the last operators are next found in it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <c10/util/flat_hash_map.h>
#include <remat/plan.h>

#include "tape/action_source.h"

namespace remat {

/// A plan and the graph that it was made for.
struct Schedule {
  Graph graph;
  Plan plan;
  uint64_t structure = 0;  ///< of the graph (plan/resize.h); 0: the plan is for steps with exactly this graph
  bool resized = false;    ///< the graph was foretold from known ones of other sizes
};

/// What the operators of a step took that followed a schedule with others missing or added.
struct FollowedTimes {
  std::shared_ptr<const Schedule> schedule;
  std::vector<double> seconds;  ///< by operator of the schedule's graph; -1 for those that did not run
};

class PlanFollower final : public ActionSource {
 public:
  /// What the step has shown of its sizes, by value of the schedule's graph.
  struct Seen {
    std::vector<int64_t> bytes;  ///< -1: not made yet. What was left out has 0, what came twice has the sum
    std::vector<bool> away;      ///< evicted already
  };
  using SharedSchedule = std::shared_ptr<const Schedule>;
  using Resize = std::function<SharedSchedule(const SharedSchedule& followed, const Seen& seen)>;

  /// The first is followed. The others are what the step may turn out to be instead.
  std::vector<SharedSchedule> schedules;
  /// Asked for a schedule of the same structure where sizes are others than the followed one's, which it may return if
  /// that will do. Null where none fits: the followed one is gone on with, until sizes look better, or memory runs
  /// short.
  Resize resize;

  /// Bytes of all results up to each operation, noted where that is asked for.
  bool notes_results = false;
  std::vector<int64_t> result_bytes;

  OperationId advance(const Tape& tape) override;
  std::optional<Action> action_of(const Tape& tape, ValueId value) const override;
  /// What was followed from the first operator to the last that makes a value that may be evicted, or null.
  SharedSchedule followed_to_the_end(const Tape& tape) const;
  /// Measured seconds of the step's operators, by operator of what is followed; -1 for those that did not run.
  std::vector<double> seconds(const Tape& tape) const;
  /// Operators were missing or added.
  bool has_gaps() const { return gaps_ > 0; }
  /// Do the operators and the sizes of the schedule's graph, on which its prediction rests, not count for the step?
  bool is_approximate() const { return gaps_ > 0 || approximate_; }
  /// The step had other sizes than any schedule, and there was none that fits them.
  bool found_none() const { return found_none_; }

 private:
  static constexpr uint32_t kLost = std::numeric_limits<uint32_t>::max();

  bool matches(const Tape& tape, size_t index, size_t place) const;
  bool has_size(const Tape& tape, size_t index) const;
  bool change_to_known(const Tape& tape, bool of_size);
  bool check_sizes(const Tape& tape);
  OperationId take_up_again(const Tape& tape);
  struct Place {
    size_t place = 0, run = 0;  ///< of the last operation in the graph; how many of the last are found there, 0: none
  };
  Place find_place(const Tape& tape) const;
  Seen seen(const Tape& tape) const;
  void abandon();
  void note_results(const Tape& tape);

  std::vector<uint32_t> planned_;       ///< by operation: the operator of the graph; kLost
  size_t next_ = 0;                     ///< operator of the graph that is expected
  size_t lost_ = 0;                     ///< operations since it was not found
  size_t all_lost_ = 0, gaps_ = 0;      ///< operations that stand for none; times that the operator was another
  size_t resizes_ = 0, next_look_ = 0;  ///< the operation at which sizes are looked at again
  bool found_none_ = false, approximate_ = false;
  /// From the first gap on: of the graph's operators, and by signature the operators that have it.
  std::vector<uint32_t> signatures_;
  ska::flat_hash_map<uint32_t, std::vector<uint32_t>> places_;
};

}  // namespace remat

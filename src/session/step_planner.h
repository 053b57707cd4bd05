// src/session/step_planner.h -- learns what a session's steps do, and plans the next one.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remat/graph.h>

#include "memory/fork.h"
#include "plan/pareto_front.h"
#include "session/move_trial.h"
#include "session/plan_follower.h"
#include "session/pool_shares.h"
#include "tape/tape.h"

namespace remat {

/// Knows up to 32 different steps (sizes, control flow), so that a loop may alternate between them. `auto` searches for
/// plans on another thread, beside the optimizer, from the end of a step to the beginning of the next, which waits for
/// it. Searches are not cut short by a clock. Where plain fits nothing is searched for.
///
/// Steps of one structure (the same operators, other sizes) share what was found for the largest of them and for those
/// that came again: a step of sizes that were never seen chooses from it while it runs (resized()).
class StepPlanner {
 public:
  /// `planner`: a name that make_plan() knows, or "online" for no plans but the one given. Throws Error for any other.
  StepPlanner(std::string planner, bool pack, std::optional<Plan> given = {});

  /// True if the next step should be traced: until the times of its operators are known well enough, and after a step
  /// that was none of the known ones.
  bool wants_trace() const;
  /// True if the step of `graph` has allocated or freed at other places than the last one of the same graph.
  bool is_changed(const Graph& graph) const;
  /// Learns from the graph of a completed step. The next one is expected to have `room` bytes above its baseline.
  /// `changed`: is_changed() on another rank. `once`: the step did what later ones do not (it compiled code), so plans
  /// made from it are for the next step alone. `saved`: values that its saved tensors referred to, recomputable or not;
  /// -1 for a step that needed no gradient.
  void observe(Graph graph, int64_t room, bool changed = false, bool once = false, int64_t saved = -1);
  /// Learns how a completed step went; called before observe(). `followed`: it followed a plan to its end. `evictions`:
  /// times that memory ran short all the same. Where a step that was not `traced` did not do well, the next ones are
  /// traced, but ever more rarely if that goes on.
  void note(bool followed, int64_t evictions, bool traced);
  /// Learns how long a completed step took that followed `followed` to its end and was not traced.
  void note_seconds(const Schedule& followed, double seconds);

  /// Learns that a step was refused which followed `followed`, made for it, or no plan (null). The next steps within
  /// the same room then follow no plan, as steps did that completed before there was one; where one without a plan is
  /// refused too, plans are followed again.
  void note_refused(const std::shared_ptr<const Schedule>& followed);

  /// Learns operator times from a completed step that is not observed. Called before observe(). `room`: as there.
  void learn_times(const FollowedTimes& times, int64_t room);

  /// Returns what to follow within `room` bytes above the baseline: a schedule for each known step that has a plan,
  /// that of the last step first.
  std::vector<std::shared_ptr<const Schedule>> schedules(int64_t room);
  /// Returns what a step that turns out to have other sizes should follow in the place of `followed`: of the plans
  /// known for its structure the fastest that the simulator puts within the room of the last schedules(). Null where
  /// nothing fits; `followed` itself where it drops nothing and room is plenty. Called on the thread that runs the
  /// step.
  std::shared_ptr<const Schedule> resized(const std::shared_ptr<const Schedule>& followed,
                                          const PlanFollower::Seen& seen) const;

  /// What chose the values that a step evicted: StepReport's decided_by and decision_reason.
  struct Decision {
    std::string by, reason;
  };
  /// `followed`: what the step followed to its end; null: nothing. `following`: how. `traced`: the step's graph, if it
  /// was traced. Asked before that is observed.
  Decision decision(const Schedule* followed, const PlanFollower& following, const Graph* traced) const;

  /// Returns the graph of the last observed step that begins like `tape`; null where there is none.
  const Graph* graph_like(const Tape& tape) const;
  /// Returns the lowest peak, in bytes above the baseline, of the plans known for the step of `graph`, which
  /// graph_like() or graph() has returned. Empty where none were searched for.
  std::optional<int64_t> lowest_plan(const Graph& graph) const;
  /// True if `tape`, whose next operator allocates `request` bytes, has run what a known step that could drop values
  /// began with, and nowhere with more bytes.
  bool covers(const Tape& tape, int64_t request) const;
  /// True if every known step that began like `tape`, with no smaller sizes, would fit in plain with `room` bytes above
  /// its baseline. False where none is known. `gradients`: bytes that are alive as the step begins. Those that a known
  /// step began with, and freed or added to, are made anew where they are not.
  bool fits_in_plain(const Tape& tape, int64_t room, int64_t gradients) const;
  /// True if a step is known that took `plain` bytes above its baseline and of which nothing was recorded (it ran under
  /// a dispatch mode of the user's). Steps without records cannot be told apart by their operators.
  bool covers_unrecorded(int64_t plain) const;
  /// True if `tape` has run what known steps began with, with more bytes than any of them.
  bool is_outgrown_by(const Tape& tape, int64_t request) const;
  /// Learns that the next step is expected to have `room` bytes above its baseline, since the session's budget is
  /// another now. A search for that begins where one is needed. Going back to a room needs none.
  void expect_room(int64_t room);
  /// Returns a room in bytes that the step of graph() has a plan for: at most `room`, or else the smallest that the
  /// planner finds. With `keep_plans` later steps know what was found. Empty where there is no graph, or the planner
  /// makes no plans.
  std::optional<int64_t> smallest_planned(int64_t room, bool keep_plans);
  /// Returns what the largest known step asks a pool for, by the plans that are known for it; nothing is known before
  /// the first. `searches`: for plans within less than plain takes, where that was not done yet.
  PoolDemand demand(bool searches);
  /// Returns the graph of the last observed step, with the medians of the times seen; null before the first.
  const Graph* graph() const { return known_.empty() ? nullptr : &known_.front().graph; }

 private:
  static constexpr size_t kSamples = 4;  ///< steps whose times are looked at; the first is often slow

  struct StepTimes {
    std::vector<double> operators;  ///< seconds
    double step = 0;
  };
  /// Deletes a search's future where the process is the one that began it. A child after a fork has no such thread: the
  /// future's destructor would wait there for ever.
  struct EndSearch {
    EndSearch() : begun(forks()) {}
    int begun;
    void operator()(std::future<planners::FoundPlans>* search) const {
      if (begun == forks()) delete search;
    }
  };
  using Search = std::unique_ptr<std::future<planners::FoundPlans>, EndSearch>;
  static bool is_in_progress(const Search& search) {
    return search != nullptr && search.get_deleter().begun == forks();
  }
  struct KnownStep {
    Graph graph;
    uint64_t fingerprint = 0;
    uint64_t structure = 0;
    bool once = false;
    int64_t kept_peak = 0;           ///< bytes above the baseline, of a step that keeps all
    bool saves = false;              ///< values that could be dropped
    int64_t saved = -1;              ///< values, whether they could be or not; -1: of a step that needed no gradient
    std::vector<StepTimes> samples;  ///< one for each observed step
    unsigned changes = 0;            ///< times that it did other things to memory than the time before
    Search exploration;              ///< in progress
    std::optional<planners::FoundPlans> found;
    std::vector<int64_t> explored_rooms;  ///< bytes: that plans of `front` were searched for
    bool has_curve = false;               ///< plans of `front` were searched for from the least room to plain's
    int moves = 0;                        ///< times that it was searched for another room
    int64_t explored_baseline = 0;        ///< bytes, of the graph that was explored: later steps may begin with others
    std::shared_ptr<const Schedule> schedule;
    std::optional<int64_t> room;     ///< that `schedule` is for
    std::optional<MoveTrial> trial;  ///< where the fastest plan moves values, and another need not
    int64_t trial_room = 0;          ///< bytes: that the trial is about
    int64_t refused_room = -1;       ///< bytes of room within which its plans are not followed, see note_refused()

    int64_t budget_within(int64_t room_bytes) const { return graph.baseline_bytes + room_bytes; }
    bool is_explored(int64_t room_bytes) const;
    bool avoids_moves() const { return trial && trial->is_over() && !trial->wants_moves(); }
  };

  static void use_largest_packed(const Graph& before, Graph& graph);
  /// True if two graphs have the same bytes, but for what was alive before the step.
  static bool same_memory(const Graph& a, const Graph& b);
  void use_medians(KnownStep& step) const;
  KnownStep& add(const Graph& graph, uint64_t fingerprint);
  size_t times_seen(uint64_t structure) const;
  bool is_largest(const KnownStep& step) const;
  bool needs_search(const KnownStep& step) const;
  KnownStep& step_to_plan(KnownStep& seen);
  bool has_cheap_plan(const KnownStep& step) const;
  void plan_anew(KnownStep& step, int64_t room);
  bool has_plenty(const Schedule& followed, const PlanFollower::Seen& seen) const;
  std::shared_ptr<Schedule> chosen(Graph graph, uint64_t structure, int64_t limit, double margin,
                                   const std::vector<bool>& away) const;
  bool is_worth_planning(const KnownStep& step) const;
  static void forget_other_baseline(KnownStep& step);
  void explore(KnownStep& step, int64_t room) const;
  static void take_found(KnownStep& step);
  void explore_curve(KnownStep& step) const;
  void plan(KnownStep& step, int64_t room) const;
  std::string given_problem(const Graph& graph, std::optional<int64_t> room) const;
  std::string why_not_given(const Schedule* followed, const Graph* traced) const;
  std::string why_plan(const Schedule& followed, const PlanFollower& following) const;
  std::string why_online(const PlanFollower& following, const Graph* traced) const;
  const KnownStep* find(uint64_t fingerprint) const;
  std::optional<Plan> given_plan(const KnownStep& step, int64_t budget) const;
  std::optional<Plan> plain_plan(const KnownStep& step, int64_t budget) const;
  std::optional<Plan> fastest_within(const planners::ParetoFront& plans, const KnownStep& step, int64_t room) const;
  std::optional<Plan> searched_plan(KnownStep& step, int64_t room) const;
  std::optional<Plan> best_plan(KnownStep& step, int64_t room) const;

  std::string planner_;
  bool pack_;
  std::optional<Plan> given_;
  int to_look_for_ = 0;            ///< steps to trace in search of one that surprised
  int to_ignore_ = 0, pause_ = 0;  ///< surprises to come that are not looked for, and how many the next time
  int new_ones_ = 8;               ///< structures that may be traced until their times are known
  double margin_ = 0.02;           ///< of the headroom, left free where a graph was not predicted exactly
  int64_t room_ = 0;               ///< bytes: of the last schedules()
  std::vector<KnownStep> known_;   ///< the last observed first
};

}  // namespace remat

// src/run/step_planner.h -- learns what a session's steps do, and plans the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remat/graph.h>

#include "record/tape.h"

namespace remat {

class StepPlanner {
 public:
  /// `planner`: a name that make_plan() knows, or "online" for no plans. Throws Error for any other.
  StepPlanner(std::string planner, bool pack);

  /// Should the next step be traced? Until the times of its operators are known well enough, and again after a step
  /// that was not as expected.
  bool wants_trace() const;
  /// A step has completed, and this is its graph.
  void observe(Graph graph);
  /// A step has departed from its schedule, or passed what was planned for it.
  void surprised() { samples_.clear(); }

  /// What to follow within `room` bytes above the baseline; null where nothing need be dropped, nothing is known yet or
  /// no plan fits.
  std::shared_ptr<const Schedule> schedule(int64_t room);

  /// The graph of the last step that was observed, with the medians of the times seen.
  const std::optional<Graph>& graph() const { return graph_; }

 private:
  void use_medians();

  std::string planner_;
  bool pack_;
  std::optional<Graph> graph_;
  uint64_t fingerprint_ = 0;
  std::vector<std::vector<double>> samples_;  ///< one for each observed step: seconds of its operators
  std::shared_ptr<const Schedule> schedule_;
  std::optional<int64_t> planned_room_;  ///< what `schedule_` was made for
};

}  // namespace remat

// cli/measuring.h -- records steps of one of the zoo's models, and measures steps under plans for them.
#pragma once

#include <cstdint>
#include <memory>

#include <remat/graph.h>
#include <remat/plan.h>

#include "cli/settings.h"
#include "cli/sweep_results.h"

namespace remat::cli {

/// Gradients exist before the first step, as in `remat record`. One at a time: what another has alive would count.
class SweptModel {
 public:
  /// `depth`: 0: that of the settings.
  SweptModel(const SweepSettings& settings, int64_t depth);
  ~SweptModel();
  SweptModel(const SweptModel&) = delete;
  SweptModel& operator=(const SweptModel&) = delete;

  const Graph& graph() const;
  int64_t batch() const;  ///< examples per step

  /// A step that writes down what it does, one that follows the plan and is not counted, then `rounds` of plain steps
  /// and of planned ones in turn, several each where they are short. No limit holds: the plan alone decides what its
  /// steps take.
  Measurement measure(const Plan& plan, int64_t rounds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Surroundings surroundings();

}  // namespace remat::cli

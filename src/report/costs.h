// src/report/costs.h -- what a plan costs, value by value and operator by operator.
#pragma once

#include <vector>

#include <remat/graph.h>
#include <remat/timeline.h>

namespace remat {

struct PlanCosts {
  struct Cost {
    int64_t replays = 0;  ///< operators that ran again
    double seconds = 0;   ///< of replays, and of packing and unpacking
  };
  std::vector<Cost> of_value;     ///< by value: of bringing it back
  std::vector<Cost> of_operator;  ///< by operator: of running it again
  Cost all;
};

/// Of a timeline under a plan.
PlanCosts plan_costs(const Graph& graph, const Timeline& timeline);

}  // namespace remat

// src/report/costs.h -- what a plan costs, value by value and operator by operator; what becomes of values.
#pragma once

#include <cstdint>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>
#include <remat/timeline.h>

namespace remat {

/// What becomes of a saved value under a plan or a policy.
enum class Fate : uint8_t { kKept, kPacked, kMoved, kRecomputed };
Fate fate_of(const GraphValue& value, const Action& action);

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

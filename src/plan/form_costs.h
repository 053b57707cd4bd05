// src/plan/form_costs.h -- what it takes to hold contents in a form, in seconds per byte of the contents.
#pragma once

#include <cstdint>
#include <map>

#include <remat/graph.h>
#include <remat/plan.h>

namespace remat {

/// Measured on contents that are in no cache: 12 GB/s to pack floats, 22 GB/s to unpack them.
inline constexpr FormCosts kPackingCosts{.out = {.compute = 0.08e-9}, .in = {.compute = 0.05e-9}};

/// Of packing `bytes` and unpacking them again.
constexpr double packing_seconds(int64_t bytes) {
  return (kPackingCosts.out.compute + kPackingCosts.in.compute) * static_cast<double>(bytes);
}

/// Of the forms that a plan for the graph may use.
inline std::map<Form, FormCosts> form_costs(const Graph& graph) {
  std::map<Form, FormCosts> costs{{Form::kPacked, kPackingCosts}};
  if (graph.tier) costs[Form::kMoved] = graph.tier->costs;
  return costs;
}

}  // namespace remat

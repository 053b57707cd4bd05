// src/plan/articulation.h -- articulation points of a graph, and plans that keep them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <remat/graph.h>

#include "plan/candidates.h"

namespace remat::planners {

/// The values that are articulation points (Hopcroft and Tarjan 1973, in linear time, without recursion) of the
/// undirected graph of operators and values, leaves left out: without such a value no path connects its producer with
/// the last operator. In ascending order.
std::vector<int32_t> articulation_values(const Graph& graph);

/// Offers plans that keep the values marked in `also` and every articulation point, every second, every third and so
/// on; at last none. Numbers that give the same plan are left out.
void offer_articulation(Candidates& candidates, const Graph& graph, const std::vector<bool>& also);

/// By value: whether it is a result of an operator whose name is `compute_bound`. A value that an operator writes in
/// place over such a result is one too: a bias that is added to a product.
std::vector<bool> results_of(const Graph& graph, bool (*compute_bound)(std::string_view name));

}  // namespace remat::planners

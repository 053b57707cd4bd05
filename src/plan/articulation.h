// src/plan/articulation.h -- values through which everything goes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <remat/graph.h>

#include "plan/candidates.h"

namespace remat::planners {

/// Articulation points between the operators that made a value and the last operator (Hopcroft and Tarjan 1973, in
/// linear time, without recursion): without the value its producer has no connection to the last operator, forwards or
/// backwards. Leaves do not count as connections. In order.
std::vector<int32_t> articulation_values(const Graph& graph);

/// Offers actions that keep what is marked in `also` and every point, every second, every third and so on, as far as
/// that makes a difference; at last none.
void offer_articulation(Candidates& candidates, const Graph& graph, const std::vector<bool>& also);

/// The values that are results of operators with `costly`, by value. What an operator writes in place over such a
/// result is one too: a bias that is added to a product.
std::vector<bool> results_of(const Graph& graph, bool (*costly)(std::string_view name));

}  // namespace remat::planners

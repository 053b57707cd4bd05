// src/plan/costly.h -- operators that are costly to replay, by name: the one table that planners, policies and the
// recorder read.
#pragma once

#include <string_view>
#include <vector>

#include <remat/graph.h>

namespace remat::planners {

bool is_product(std::string_view name);  ///< of matrices
bool is_convolution(std::string_view name);
bool is_attention(std::string_view name);  ///< fused
bool is_recurrent(std::string_view name);  ///< a whole layer in one operator
/// Any of these.
bool is_compute(std::string_view name);

/// The values that are results of operators with `costly`, by value. What an operator writes in place over such a
/// result is one too: a bias that is added to a product.
std::vector<bool> results_of(const Graph& graph, bool (*costly)(std::string_view name));

}  // namespace remat::planners
